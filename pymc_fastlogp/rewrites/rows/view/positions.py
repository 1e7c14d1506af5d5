"""A grid, and which positions of an axis its rows read.

What a position and a ``Where`` are is in :mod:`~pymc_fastlogp.rewrites.rows.view.row_view`.
"""

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.gathers import Where
from pymc_fastlogp.rewrites.rows.view.open_lengths import fitting
from pymc_fastlogp.rewrites.rows.view.take import take


class Rows:
    """The rows of a grid, all of them or chosen ones.

    Parameters
    ----------
    shape : tuple of int
        The lengths of its axes.
    n_chosen : int
        How many rows are chosen, if any are; each ``Where`` then holds arrays of that length.
        Needed by :meth:`Grid.at <pymc_fastlogp.rewrites.rows.view.grid.Grid.at>`.
    conditions : sequence of TensorVariable
        What must be true of lengths that no type knows, see :mod:`~pymc_fastlogp.rewrites.rows.view.open_lengths`.
        Needed by :meth:`Grid.at <pymc_fastlogp.rewrites.rows.view.grid.Grid.at>`, too.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        n_chosen: int = 0,
        conditions: Sequence[TensorVariable] = (),
    ):
        self.shape = shape
        self.n_rows = prod(shape)
        self.n_chosen = n_chosen
        self.conditions = conditions

    def take(
        self, x: TensorVariable, by_axis: Mapping[int, np.ndarray], rest: Sequence[int]
    ) -> TensorVariable:
        """Return a leaf indexed by arrays on some axes, as :func:`take`, where what it meets fits it."""
        return take(fitting(x, self.conditions), by_axis, rest)

    def positions(self, x: TensorVariable, axis: int, position: int | np.ndarray) -> np.ndarray:
        """Return the positions that the rows read on an axis, as an array."""
        length = x.type.shape[axis]
        if length is None and not isinstance(position, int):
            # Of a slice they may lie beyond the number of rows.
            return position
        if length is None:
            length = self.shape[position]
        return self.pick(np.arange(length), {0: position})

    def pick(self, data: np.ndarray, where: Where) -> np.ndarray:
        """Return what the rows read of ``data``: their axes first, then those not in ``where``."""
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
        """Return a position as an array that can be broadcast with those of other axes."""
        if isinstance(position, int):
            return np.arange(length).reshape(
                [-1 if k == position else 1 for k in range(len(self.shape))]
            )
        return np.zeros_like(position) if length == 1 else position
