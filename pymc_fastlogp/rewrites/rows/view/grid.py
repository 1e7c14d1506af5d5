"""Views of variables on a grid: what each row reads of them, and what they are at chosen rows alone.

How the Ops are viewed, and what a row, a position and a ``Where`` are, is in :mod:`~pymc_fastlogp.rewrites.rows.view.row_view`.
"""

import sys
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from math import prod

import numpy as np
from pytensor.tensor.basic import constant
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.gathers import Where, position_key
from pymc_fastlogp.rewrites.rows.view.axes import moved
from pymc_fastlogp.rewrites.rows.view.positions import Rows
from pymc_fastlogp.rewrites.rows.view.row_view import COMPUTING, View, rest_of, rule_of

# At more positions a variable counts as computed for all rows. Of `x[p] + x[q]` twenty times in a row, rows would read it at a million.
MOST_POSITIONS = 32


class Grid(Rows):
    """Views of the variables that are computed on a grid, all its rows or chosen ones.

    Parameters are those of :class:`~pymc_fastlogp.rewrites.rows.view.positions.Rows`.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        n_chosen: int = 0,
        conditions: Sequence[TensorVariable] = (),
    ):
        super().__init__(shape, n_chosen, conditions)
        self._views: dict[Hashable, View] = {}
        self._n_positions: Counter[TensorVariable] = Counter()
        self._built: dict[Hashable, TensorVariable] = {}

    def view(self, x: TensorVariable, where: Where) -> View:
        """Return the view of ``x``; of an Op without a rule each position counts as different."""
        key = view_key(x, where)
        if key not in self._views:
            is_leaf = x.owner is None or self._has_fewer_rows(x, where)
            is_leaf = is_leaf or self._is_read_all_over(x, where)
            view = None if is_leaf else rule_of(x)(self, x.owner, where)
            self._views[key] = self._leaf(x, where) if view is None else view
        return self._views[key]

    def _has_fewer_rows(self, x: TensorVariable, where: Where) -> bool:
        """Return whether fewer rows than are chosen are all that ``x`` has, so that it is computed at each of its own, and read.

        On a grid of several axes it may vary along one of them alone: of a matrix of distances, the sums of its rows.
        """
        lengths = [x.type.shape[axis] for axis in where]
        is_computed = rule_of(x) in COMPUTING
        return is_computed and None not in lengths and prod(lengths) < self.n_chosen

    def _is_read_all_over(self, x: TensorVariable, where: Where) -> bool:
        """Return whether ``x`` has been viewed at many positions, not counting those that all rows share, as of a column."""
        arrays = [p for p in where.values() if isinstance(p, np.ndarray) and p.size > 1]
        self._n_positions[x] += bool(arrays)
        return bool(arrays) and self._n_positions[x] > MOST_POSITIONS

    def walk(
        self, to_see: list[tuple[TensorVariable, Where]]
    ) -> Iterator[tuple[TensorVariable, Where, View]]:
        """Yield what varies of some variables and of all that they are computed from, each view once."""
        seen = set()
        while to_see:
            x, where = to_see.pop()
            if varies(x, where) and id(view := self.view(x, where)) not in seen:
                seen.add(id(view))
                to_see += view.inputs
                yield x, where, view

    def at(self, x: TensorVariable, where: Where) -> TensorVariable:
        """Build ``x`` at the chosen rows; what reads the same becomes the same variable.

        It is the gradient that needs this: what it sends to two variables, however equal, is
        scattered twice.
        """
        key = view_key(x, where)
        if key not in self._built:
            self._built[key] = self._at(x, where)
        return self._built[key]

    def _at(self, x: TensorVariable, where: Where) -> TensorVariable:
        if not varies(x, where):
            return moved(x, ["x", *rest_of(x, where)])
        view = self.view(x, where)
        inputs = [self.at(*viewed) for viewed in view.inputs]
        key = x, *where, *inputs, *((array.dtype, array.tobytes()) for array in view.reads)
        if key not in self._built:
            self._built[key] = view.rebuild(inputs)
        return self._built[key]

    def _leaf(self, x: TensorVariable, where: Where) -> View:
        if isinstance(x, TensorConstant):
            picked = self.pick(x.data, where)
            return View([], lambda _: constant(picked), [picked])
        by_axis = {a: self.positions(x, a, p) for a, p in where.items() if _varies_along(x, a)}
        return View([], lambda _: self.take(x, by_axis, rest_of(x, where)), [*by_axis.values()])


def varies(x: TensorVariable, where: Where) -> bool:
    """Return whether ``x`` may differ from row to row."""
    return any(_varies_along(x, axis) for axis in where)


def static_length(x: TensorVariable, axis: int) -> int | None:
    """Return how long an axis is, from the type of ``x`` or of what it is computed from."""
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
    """Return what is equal for the same variable at the same positions."""
    return x, tuple((axis, position_key(p)) for axis, p in where.items())
