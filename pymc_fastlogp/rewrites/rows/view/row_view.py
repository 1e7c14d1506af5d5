"""Read an expression row by row: what of it each row reads, and its value at chosen rows alone.

Let ``x`` be reduced over some of its axes, the *grid*; a *row* is a point of the grid. ``x`` at the
rows ``r`` is an expression of the same Ops over ``x``'s leaves at ``r``, because each of the Ops in
:data:`VIEWS` computes a row of its output from that row of its inputs:

.. code::

    f(u, v)[r]           ->  f(u[r], v[r])
    constant[r]          ->  another constant
    theta[g][r]          ->  theta[g[r]]          g constant
    p[arange(n), y][r]   ->  p[r][arange(len(r)), y[r]]

So what a row reads is what its leaves hold there: entries of constants, and positions in
everything else. Two rows that read the same have the same value.

Where an axis of a variable is read is a *position*: the number of a grid axis, which it is then
aligned with, or an array of integers, either broadcastable against the grid or with one for each
chosen row. A ``Where`` maps axes to positions.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, Join, alloc, join
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import All, Any, Dot, Max, Min, Prod, Sum, dot
from pytensor.tensor.special import LogAddExp, LogSoftmax, LogSumExp, Softmax, XLog1PY, XLogY
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.gathers import Where, parse_gather
from pymc_fastlogp.rewrites.rows.view.axes import for_each_row, from_first, moved, own_positions
from pymc_fastlogp.rewrites.rows.view.positions import Rows
from pymc_fastlogp.rewrites.rows.view.take import take


class View(NamedTuple):
    """Row-by-row computation of a variable.

    Attributes
    ----------
    inputs : list of (TensorVariable, Where)
        What is to be viewed in turn, and where.
    rebuild : callable
        Makes the variable at the chosen rows from ``inputs`` there. The first axis is that of the
        rows, of length one where nothing varies; those that are not in the grid follow in order.
    reads : sequence of numpy.ndarray
        What a row reads here, besides ``inputs``: the axes of the grid first, of length one where
        a grid axis does not matter.
    """

    inputs: list[tuple[TensorVariable, Where]]
    rebuild: Callable[[list[TensorVariable]], TensorVariable]
    reads: Sequence[np.ndarray] = ()


def rest_of(x: TensorVariable, where: Where) -> list[int]:
    """Return the axes of ``x`` that are not in ``where``."""
    return [axis for axis in range(x.type.ndim) if axis not in where]


def rule_of(x: TensorVariable) -> "Rule":
    """Return how the Op that computes ``x`` is viewed."""
    op = x.owner.op
    return VIEWS.get(type(op), _check if isinstance(op, CheckAndRaise) else _opaque)


def _opaque(grid: Rows, node: Apply, where: Where) -> None:
    """Know nothing about an Op."""


def _elemwise(grid: Rows, node: Apply, where: Where) -> View | None:
    if len(node.outputs) != 1 or getattr(node.op, "inplace_pattern", None):
        return None
    if any(x.type.ndim != node.outputs[0].type.ndim for x in node.inputs):
        return None
    return View([(x, where) for x in node.inputs], lambda inputs: node.op(*inputs))


def _check(grid: Rows, node: Apply, where: Where) -> View:
    x, *conditions = node.inputs
    return View([(x, where)], lambda inputs: node.op(inputs[0], *conditions))


def _dimshuffle(grid: Rows, node: Apply, where: Where) -> View:
    [x], order = node.inputs, node.op.new_order
    of_input = {order[axis]: p for axis, p in where.items() if order[axis] != "x"}
    after = _after_rows(x, of_input)
    rest = [order[axis] for axis in rest_of(node.outputs[0], where)]
    new_order = [0, *("x" if axis == "x" else after[axis] for axis in rest)]
    return View([(x, of_input)], lambda inputs: moved(inputs[0], new_order))


def _reduce(grid: Rows, node: Apply, where: Where) -> View | None:
    """View a reduction over axes that are not in the grid."""
    [x], op = node.inputs, node.op
    if op.axis is None:
        return None
    reduced = from_first(op.axis, x.type.ndim)
    kept = [axis for axis in range(x.type.ndim) if axis not in reduced]
    of_input = {kept[axis]: p for axis, p in where.items()}
    after = _after_rows(x, of_input)
    axes = tuple(after[axis] for axis in reduced)
    new_op = LogSumExp(axis=axes) if isinstance(op, LogSumExp) else op.clone(axis=axes)
    return View([(x, of_input)], lambda inputs: new_op(inputs[0]))


def _softmax(grid: Rows, node: Apply, where: Where) -> View | None:
    [x], op = node.inputs, node.op
    axes = from_first(op.axis or (), x.type.ndim)
    if not axes or not where.keys().isdisjoint(axes):
        return None
    after = _after_rows(x, where)
    new_op = type(op)(axis=tuple(after[axis] for axis in axes))
    return View([(x, where)], lambda inputs: new_op(inputs[0]))


def _join(grid: Rows, node: Apply, where: Where) -> View | None:
    along = node.op.axis
    if not 0 <= along < node.outputs[0].type.ndim or along in where:
        return None
    new_axis = _after_rows(node.outputs[0], where)[along]

    def joined(inputs: list[TensorVariable]) -> TensorVariable:
        return join(new_axis, *(for_each_row(x, grid.n_chosen) for x in inputs))

    return View([(x, where) for x in node.inputs], joined)


def _alloc(grid: Rows, node: Apply, where: Where) -> View:
    """View a value repeated. It stays as long as there are rows, since a join may read it."""
    x, *shape = node.inputs
    added = len(shape) - x.type.ndim
    of_input = {axis - added: p for axis, p in where.items() if axis >= added}
    rest = rest_of(node.outputs[0], where)
    after = _after_rows(x, of_input)
    order = [0, *("x" if axis < added else after[axis - added] for axis in rest)]
    lengths = [shape[axis] for axis in rest]
    return View(
        [(x, of_input)],
        lambda inputs: alloc(moved(inputs[0], order), grid.n_chosen, *lengths),
    )


def _dot(grid: Rows, node: Apply, where: Where) -> View | None:
    """View rows of a matrix times another matrix."""
    left, right = node.inputs
    if [*where] != [0] or left.type.ndim != 2 or right.type.ndim != 2:
        return None
    return View([(left, where)], lambda inputs: dot(inputs[0], right))


def _slices(grid: Rows, node: Apply, where: Where) -> View | None:
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
    return View([(x, of_input)], lambda inputs: inputs[0][(slice(None), *of_rest)])


def _gather(grid: Rows, node: Apply, where: Where) -> View | None:
    """View ``x[.., g, h, ..]``, where ``g, h`` are constant arrays on neighboring axes.

    Where an axis of ``x`` is as long as there are rows, ``x`` is most likely computed row by row,
    and is viewed in turn; anywhere else it is a table that the rows look things up in.
    """
    gather = parse_gather(node)
    if gather is None or not (of_arrays := gather.of_arrays(where)):
        return None
    x, of_x = node.inputs[0], gather.of_table(where)
    reads = {axis: grid.pick(i, of_arrays) for axis, i in gather.arrays.items()}
    extra = (1,) * (gather.ndim - len(of_arrays))
    rows = {axis: p for axis, p in reads.items() if _is_long(grid, x, axis, p, len(extra))}
    arrange = gather.arrangement(where)
    if not rows:
        reads |= {
            a: (q := grid.positions(x, a, p)).reshape(q.shape + extra) for a, p in of_x.items()
        }
        rest = rest_of(x, reads)
        return View([], lambda _: moved(grid.take(x, reads, rest), arrange), [*reads.values()])
    viewed = of_x | {axis: p.reshape(p.shape[: p.ndim - len(extra)]) for axis, p in rows.items()}
    after = _after_rows(x, viewed)
    looked_up = {after[axis]: p for axis, p in reads.items() if axis not in rows}

    def rebuild(inputs: list[TensorVariable]) -> TensorVariable:
        if not looked_up:
            return moved(moved(inputs[0], [0, *"x" * len(extra), *after.values()]), arrange)
        by_axis = {0: own_positions(inputs[0], grid.n_chosen, len(extra)), **looked_up}
        rest = [axis for axis in after.values() if axis not in by_axis]
        return moved(take(inputs[0], by_axis, rest), arrange)

    return View([(x, viewed)], rebuild, [p for axis, p in reads.items() if axis not in rows])


def _is_long(grid: Rows, x: TensorVariable, axis: int, positions: np.ndarray, n_extra: int) -> bool:
    """Return whether an axis that is read at one position a row is as long as there are rows."""
    length = x.type.shape[axis]
    one_each = all(n == 1 for n in positions.shape[positions.ndim - n_extra :])
    return x.owner is not None and one_each and length is not None and length >= grid.n_rows


def _after_rows(x: TensorVariable, where: Where) -> dict[int, int]:
    """Return where the axes of ``x`` that are not in ``where`` are in ``x`` at the rows."""
    return {axis: 1 + k for k, axis in enumerate(rest_of(x, where))}


Rule = Callable[[Rows, Apply, Where], View | None]

# Indexing, joins and what only moves entries gain nothing where there are fewer rows.
COMPUTING: tuple[Rule, ...] = (_elemwise, _reduce, _softmax, _dot)

VIEWS: dict[type, Rule] = {
    **dict.fromkeys((Elemwise, XLogY, XLog1PY, LogAddExp), _elemwise),
    **dict.fromkeys((Sum, Prod, Max, Min, All, Any, LogSumExp), _reduce),
    **dict.fromkeys((Softmax, LogSoftmax), _softmax),
    DimShuffle: _dimshuffle,
    Join: _join,
    Alloc: _alloc,
    Dot: _dot,
    Subtensor: _slices,
    AdvancedSubtensor: _gather,
}
