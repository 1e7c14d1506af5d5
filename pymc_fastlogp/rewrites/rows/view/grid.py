r"""View an expression row by row: the entries that each row reads, and the value at chosen rows.

Let ``x`` be reduced over some of its axes, the *grid*. A *row* is a point of the grid. Each Op in :data:`VIEWS`
computes a row of its output from the same row of its inputs. So ``x`` at the rows ``r`` is the same expression of the
leaves of ``x`` at ``r``:

.. code::

    f(u, v)[r]           ->  f(u[r], v[r])
    constant[r]          ->  another constant
    theta[g][r]          ->  theta[g[r]]          g constant
    p[arange(n), y][r]   ->  p[r][arange(len(r)), y[r]]

A row therefore reads entries of constants, and positions in all other leaves. Two rows that read the same have the same
value.

A *position* says where the rows read an axis of a variable. It is one of

- the number of a grid axis, with which the axis is aligned;
- an array of integers that broadcasts against the grid;
- an array of integers with one entry per chosen row.

A ``Where`` maps axes to positions.
"""

import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from hashlib import sha256
from math import prod
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, Join, alloc, constant, join
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import All, Any, Dot, Max, Min, Prod, Sum, dot
from pytensor.tensor.special import LogAddExp, LogSoftmax, LogSumExp, Softmax, XLog1PY, XLogY
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.gathers import Where, parse_gather, position_key
from pymc_fastlogp.rewrites.rows.view.axes import (
    arrange_axes,
    normalize_axes,
    repeat_rows,
    row_positions,
    take,
)
from pymc_fastlogp.rewrites.rows.view.length_checks import after_length_checks

# A variable that is viewed at more positions is computed for all rows. Each level of nested shifts such as `x[p] + x[q]`
# doubles the number of positions.
MOST_POSITIONS = 32


class View(NamedTuple):
    """Row-by-row computation of a variable.

    Attributes
    ----------
    inputs : list of (TensorVariable, Where)
        Operands, and the positions at which these are viewed.
    rebuild : callable
        Computes the variable at the chosen rows from ``inputs`` there. The first axis is the axis of the rows, of
        length one if all rows are equal. Axes that are not in the grid follow in order.
    reads : sequence of numpy.ndarray
        Entries that a row reads besides ``inputs``: the axes of the grid first, of length one where the
        entries do not depend on a grid axis.
    """

    inputs: list[tuple[TensorVariable, Where]]
    rebuild: "Callable[[ChosenRows, list[TensorVariable]], TensorVariable]"
    reads: Sequence[np.ndarray] = ()


class Grid:
    """All rows of a grid, with a cached :class:`View` of each variable.

    Parameters
    ----------
    shape : tuple of int
        Lengths of the axes of the grid.
    """

    def __init__(self, shape: tuple[int, ...]):
        self.shape = shape
        self.n_rows = prod(shape)
        self._views: dict[Hashable, View] = {}
        self._n_positions: Counter[TensorVariable] = Counter()

    def view(self, x: TensorVariable, where: Where) -> View:
        """Return the view of ``x``, a leaf if its Op is not in :data:`VIEWS`."""
        key = view_key(x, where)
        if key not in self._views:
            is_leaf = x.owner is None or self._is_leaf(x, where)
            view = None if is_leaf else rule_of(x)(self, x.owner, where)
            self._views[key] = self._leaf(x, where) if view is None else view
        return self._views[key]

    def walk(
        self, to_see: list[tuple[TensorVariable, Where]]
    ) -> Iterator[tuple[TensorVariable, Where, View]]:
        """Yield the row-dependent ones of some variables and their ancestors, each view once."""
        seen = set()
        while to_see:
            x, where = to_see.pop()
            if varies(x, where) and id(view := self.view(x, where)) not in seen:
                seen.add(id(view))
                to_see += view.inputs
                yield x, where, view

    def positions(self, x: TensorVariable, axis: int, position: int | np.ndarray) -> np.ndarray:
        """Return the positions that the rows read on an axis, as an array."""
        length = x.type.shape[axis]
        if length is None and not isinstance(position, int):
            # The positions of a slice may exceed the number of rows.
            return position
        if length is None:
            length = self.shape[position]
        return self.pick(np.arange(length), {0: position})

    def pick(self, data: np.ndarray, where: Where) -> np.ndarray:
        """Return the entries of ``data`` that the rows read: the axes of the rows first, then axes not in ``where``."""
        rest = [axis for axis in range(data.ndim) if axis not in where]
        if any(isinstance(position, np.ndarray) for position in where.values()):
            in_front = data.transpose([*where, *rest])
            return in_front[tuple(map(self._explicit, where.values(), in_front.shape))]
        axis_of = {position: axis for axis, position in where.items()}
        aligned = data.transpose([*(axis_of[position] for position in sorted(axis_of)), *rest])
        return aligned[
            tuple(slice(None) if k in axis_of else np.newaxis for k in range(len(self.shape)))
        ]

    def _explicit(self, position: int | np.ndarray, length: int) -> np.ndarray:
        """Return a position as an array that broadcasts against the positions on other axes."""
        if isinstance(position, int):
            return np.arange(length).reshape(
                [-1 if k == position else 1 for k in range(len(self.shape))]
            )
        return np.zeros_like(position) if length == 1 else position

    def _is_leaf(self, x: TensorVariable, where: Where) -> bool:
        """Return whether ``x`` is made a leaf, because it has been viewed at many positions. Positions that all rows share are not counted."""
        arrays = [p for p in where.values() if isinstance(p, np.ndarray) and p.size > 1]
        self._n_positions[x] += bool(arrays)
        return bool(arrays) and self._n_positions[x] > MOST_POSITIONS

    def _leaf(self, x: TensorVariable, where: Where) -> View:
        """View a leaf. Its positions are the entries that a row reads, except for a constant, where its values are."""
        if isinstance(x, TensorConstant):
            picked = self.pick(x.data, where)
            return View([], lambda rows, _: constant(picked), [picked])
        by_axis = {a: self.positions(x, a, p) for a, p in where.items() if _varies_along(x, a)}
        return View(
            [], lambda rows, _: rows.take(x, by_axis, rest_of(x, where)), [*by_axis.values()]
        )


def _digest(array: np.ndarray) -> Hashable:
    """Return dtype, shape and a hash of the values of an array. A copy of the values would double the memory of the rows."""
    values = np.ascontiguousarray(array).view(np.uint8)
    return array.dtype, array.shape, sha256(values).digest()


class ChosenRows(Grid):
    """Some rows of a grid: build variables at these rows alone, by :meth:`at`. Each ``Where`` holds arrays with one position per chosen row.

    Parameters
    ----------
    shape : tuple of int
        Lengths of the axes of the grid.
    n_chosen : int
        Number of chosen rows.
    conditions : sequence of TensorVariable
        Checks of lengths that are not static, see :mod:`~pymc_fastlogp.rewrites.rows.view.length_checks`.
    """

    def __init__(
        self, shape: tuple[int, ...], n_chosen: int, conditions: Sequence[TensorVariable] = ()
    ):
        super().__init__(shape)
        self.n_chosen = n_chosen
        self.conditions = conditions
        self._built: dict[Hashable, TensorVariable] = {}

    def at(self, x: TensorVariable, where: Where) -> TensorVariable:
        """Return ``x`` at the chosen rows. Equal rows of equal variables become one variable.

        Otherwise the gradient would scatter the contributions of each equal variable separately.
        """
        key = view_key(x, where)
        if key not in self._built:
            self._built[key] = self._build(x, where)
        return self._built[key]

    def _build(self, x: TensorVariable, where: Where) -> TensorVariable:
        if not varies(x, where):
            return arrange_axes(x, ["x", *rest_of(x, where)])
        view = self.view(x, where)
        inputs = [self.at(*viewed) for viewed in view.inputs]
        key = x, *where, *inputs, *map(_digest, view.reads)
        if key not in self._built:
            self._built[key] = view.rebuild(self, inputs)
        return self._built[key]

    def take(
        self, x: TensorVariable, by_axis: Mapping[int, np.ndarray], rest: Sequence[int]
    ) -> TensorVariable:
        """Index a leaf by arrays on some axes, after the checks of its lengths."""
        return take(after_length_checks(x, self.conditions), by_axis, rest)

    def _is_leaf(self, x: TensorVariable, where: Where) -> bool:
        """Return whether ``x`` is made a leaf, also because it has fewer rows than are chosen."""
        return self._has_fewer_rows(x, where) or super()._is_leaf(x, where)

    def _has_fewer_rows(self, x: TensorVariable, where: Where) -> bool:
        """Return whether ``x`` has fewer rows than are chosen, so that all rows of ``x`` are computed and then indexed.

        On a grid of several axes ``x`` may vary along one axis only, for example the row sums of a matrix of distances.
        """
        lengths = [x.type.shape[axis] for axis in where]
        is_computed = rule_of(x) in COMPUTING
        return is_computed and None not in lengths and prod(lengths) < self.n_chosen


def varies(x: TensorVariable, where: Where) -> bool:
    """Return whether ``x`` may differ from row to row."""
    return any(_varies_along(x, axis) for axis in where)


def static_length(x: TensorVariable, axis: int) -> int | None:
    """Return the length of an axis from the type of ``x`` or of an ancestor, None if unknown."""
    if x.type.shape[axis] is not None or x.owner is None:
        return x.type.shape[axis]
    view = rule_of(x)(Grid((sys.maxsize,)), x.owner, {axis: 0})
    for operand, where in () if view is None else view.inputs:
        for its_axis in where:
            if _varies_along(operand, its_axis):
                return static_length(operand, its_axis)
    return None


def _varies_along(x: TensorVariable, axis: int) -> bool:
    return not x.type.broadcastable[axis]


def view_key(x: TensorVariable, where: Where) -> Hashable:
    """Return a key that is equal for the same variable at the same positions."""
    return x, tuple((axis, position_key(p)) for axis, p in where.items())


def rest_of(x: TensorVariable, where: Where) -> list[int]:
    """Return the axes of ``x`` that are not in ``where``."""
    return [axis for axis in range(x.type.ndim) if axis not in where]


def rule_of(x: TensorVariable) -> "ViewRule":
    """Return the rule that views the Op of ``x``."""
    op = x.owner.op
    return VIEWS.get(type(op), _view_check if isinstance(op, CheckAndRaise) else _view_opaque)


def _view_opaque(grid: Grid, node: Apply, where: Where) -> None:
    """Make the output of an unknown Op a leaf."""


def _view_elemwise(grid: Grid, node: Apply, where: Where) -> View | None:
    if len(node.outputs) != 1 or getattr(node.op, "inplace_pattern", None):
        return None
    if any(x.type.ndim != node.outputs[0].type.ndim for x in node.inputs):
        return None
    return View([(x, where) for x in node.inputs], lambda _, inputs: node.op(*inputs))


def _view_check(grid: Grid, node: Apply, where: Where) -> View:
    x, *conditions = node.inputs
    return View([(x, where)], lambda _, inputs: node.op(inputs[0], *conditions))


def _view_dimshuffle(grid: Grid, node: Apply, where: Where) -> View:
    [x], order = node.inputs, node.op.new_order
    of_input = {order[axis]: p for axis, p in where.items() if order[axis] != "x"}
    after = _after_rows(x, of_input)
    rest = [order[axis] for axis in rest_of(node.outputs[0], where)]
    new_order = [0, *("x" if axis == "x" else after[axis] for axis in rest)]
    return View([(x, of_input)], lambda _, inputs: arrange_axes(inputs[0], new_order))


def _view_reduction(grid: Grid, node: Apply, where: Where) -> View | None:
    """View a reduction over axes that are not in the grid."""
    [x], op = node.inputs, node.op
    if op.axis is None:
        return None
    reduced = normalize_axes(op.axis, x.type.ndim)
    kept = [axis for axis in range(x.type.ndim) if axis not in reduced]
    of_input = {kept[axis]: p for axis, p in where.items()}
    after = _after_rows(x, of_input)
    axes = tuple(after[axis] for axis in reduced)
    new_op = LogSumExp(axis=axes) if isinstance(op, LogSumExp) else op.clone(axis=axes)
    return View([(x, of_input)], lambda _, inputs: new_op(inputs[0]))


def _view_softmax(grid: Grid, node: Apply, where: Where) -> View | None:
    [x], op = node.inputs, node.op
    axes = normalize_axes(op.axis or (), x.type.ndim)
    if not axes or not where.keys().isdisjoint(axes):
        return None
    after = _after_rows(x, where)
    new_op = type(op)(axis=tuple(after[axis] for axis in axes))
    return View([(x, where)], lambda _, inputs: new_op(inputs[0]))


def _view_join(grid: Grid, node: Apply, where: Where) -> View | None:
    along = node.op.axis
    if not 0 <= along < node.outputs[0].type.ndim or along in where:
        return None
    new_axis = _after_rows(node.outputs[0], where)[along]

    def joined(rows: ChosenRows, inputs: list[TensorVariable]) -> TensorVariable:
        return join(new_axis, *(repeat_rows(x, rows.n_chosen) for x in inputs))

    return View([(x, where) for x in node.inputs], joined)


def _view_alloc(grid: Grid, node: Apply, where: Where) -> View:
    """View an ``Alloc`` as the repeated value at the rows, repeated over the chosen rows, because a join does not broadcast."""
    x, *shape = node.inputs
    added = len(shape) - x.type.ndim
    of_input = {axis - added: p for axis, p in where.items() if axis >= added}
    rest = rest_of(node.outputs[0], where)
    after = _after_rows(x, of_input)
    order = [0, *("x" if axis < added else after[axis - added] for axis in rest)]
    lengths = [shape[axis] for axis in rest]
    return View(
        [(x, of_input)],
        lambda rows, inputs: alloc(arrange_axes(inputs[0], order), rows.n_chosen, *lengths),
    )


def _view_dot(grid: Grid, node: Apply, where: Where) -> View | None:
    """View rows of a matrix times another matrix."""
    left, right = node.inputs
    if [*where] != [0] or left.type.ndim != 2 or right.type.ndim != 2:
        return None
    return View([(left, where)], lambda _, inputs: dot(inputs[0], right))


def _view_slices(grid: Grid, node: Apply, where: Where) -> View | None:
    """View basic indexing with constant slices and integers."""
    x, *entries = node.inputs
    if not all(isinstance(entry, Constant) for entry in entries):
        return None
    given = indices_from_subtensor([int(entry.data) for entry in entries], node.op.idx_list)
    indices = [*given, *[slice(None)] * (x.type.ndim - len(given))]
    kept = [axis for axis, index in enumerate(indices) if isinstance(index, slice)]
    of_input: dict[int, int | np.ndarray] = {}
    for axis, position in where.items():
        length, index = x.type.shape[kept[axis]], indices[kept[axis]]
        if length is None and index != slice(None):
            return None
        of_input[kept[axis]] = (
            position if index == slice(None) else grid.pick(np.arange(length)[index], {0: position})
        )
    of_rest = tuple(indices[axis] for axis in rest_of(x, of_input))
    return View([(x, of_input)], lambda _, inputs: inputs[0][(slice(None), *of_rest)])


def _view_gather(grid: Grid, node: Apply, where: Where) -> View | None:
    """View ``x[.., g, h, ..]``, where ``g, h`` are constant arrays on adjacent axes.

    An axis of ``x`` that is at least as long as the rows is most likely computed row by row, so ``x`` is viewed as well.
    Otherwise ``x`` is a table in which the rows look up entries.
    """
    gather = parse_gather(node)
    if gather is None or not (of_arrays := gather.of_arrays(where)):
        return None
    x, of_x = node.inputs[0], gather.of_table(where)
    reads = {axis: grid.pick(i, of_arrays) for axis, i in gather.arrays.items()}
    extra = (1,) * (gather.ndim - len(of_arrays))
    by_row = {axis: p for axis, p in reads.items() if _is_long(grid, x, axis, p, len(extra))}
    arrange = gather.arrangement(where)
    if not by_row:
        reads |= {
            a: (q := grid.positions(x, a, p)).reshape(q.shape + extra) for a, p in of_x.items()
        }
        rest = rest_of(x, reads)
        return View(
            [], lambda rows, _: arrange_axes(rows.take(x, reads, rest), arrange), [*reads.values()]
        )
    viewed = of_x | {axis: p.reshape(p.shape[: p.ndim - len(extra)]) for axis, p in by_row.items()}
    after = _after_rows(x, viewed)
    looked_up = {after[axis]: p for axis, p in reads.items() if axis not in by_row}

    def rebuild(rows: ChosenRows, inputs: list[TensorVariable]) -> TensorVariable:
        if not looked_up:
            return arrange_axes(
                arrange_axes(inputs[0], [0, *"x" * len(extra), *after.values()]), arrange
            )
        by_axis = {0: row_positions(inputs[0], rows.n_chosen, len(extra)), **looked_up}
        rest = [axis for axis in after.values() if axis not in by_axis]
        return arrange_axes(take(inputs[0], by_axis, rest), arrange)

    return View([(x, viewed)], rebuild, [p for axis, p in reads.items() if axis not in by_row])


def _is_long(grid: Grid, x: TensorVariable, axis: int, positions: np.ndarray, n_extra: int) -> bool:
    """Return whether an axis that is read at one position per row is at least as long as the rows."""
    length = x.type.shape[axis]
    one_each = all(n == 1 for n in positions.shape[positions.ndim - n_extra :])
    return x.owner is not None and one_each and length is not None and length >= grid.n_rows


def _after_rows(x: TensorVariable, where: Where) -> dict[int, int]:
    """Map the axes of ``x`` that are not in ``where`` to their axes in ``x`` at the rows."""
    return {axis: 1 + k for k, axis in enumerate(rest_of(x, where))}


ViewRule = Callable[[Grid, Apply, Where], View | None]

# Rules of Ops that compute. Ops that only move entries gain nothing from fewer rows.
COMPUTING: tuple[ViewRule, ...] = (_view_elemwise, _view_reduction, _view_softmax, _view_dot)

VIEWS: dict[type, ViewRule] = {
    **dict.fromkeys((Elemwise, XLogY, XLog1PY, LogAddExp), _view_elemwise),
    **dict.fromkeys((Sum, Prod, Max, Min, All, Any, LogSumExp), _view_reduction),
    **dict.fromkeys((Softmax, LogSoftmax), _view_softmax),
    DimShuffle: _view_dimshuffle,
    Join: _view_join,
    Alloc: _view_alloc,
    Dot: _view_dot,
    Subtensor: _view_slices,
    AdvancedSubtensor: _view_gather,
}
