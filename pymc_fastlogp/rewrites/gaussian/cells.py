"""Cells of the rows of a square. A cell is a set of rows that read the same entries of every variable that is not constant.

Cells are sorted by the entries that they read. A parameter with one entry per cell is then read in order, without a
gather if all entries are read.
"""

from collections.abc import Hashable, Sequence
from functools import reduce
from operator import truediv

import numpy as np
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.algebra import add_all, multiply_all
from pymc_fastlogp.analysis.elemwise import in_type
from pymc_fastlogp.analysis.gathers import Where, position_key
from pymc_fastlogp.rewrites.gaussian.squares import Factor, Monomial
from pymc_fastlogp.rewrites.rows.view.axes import arrange_axes
from pymc_fastlogp.rewrites.rows.view.chunks import (
    counts_of,
    first_rows,
    look_up,
    narrowest,
    rows_by_cell,
    rows_in,
)
from pymc_fastlogp.rewrites.rows.view.columns import RowReads
from pymc_fastlogp.rewrites.rows.view.grid import ChosenRows
from pymc_fastlogp.rewrites.rows.view.keys import Codes


class GaussianCells:
    """Cells of the rows of a mask, and values of expressions in each cell.

    Parameters
    ----------
    reads : RowReads
        Columns that all rows read.
    columns : frozenset of int
        Columns that distinguish cells.
    codes : Codes
        The cell of each row, by these columns.
    mask : numpy.ndarray of bool, optional
        Rows that count, broadcastable to the grid; None for all.
    dtype : str
        Dtype of the sum and of all computations: parameters may be integers or have a narrower dtype.
    conditions : sequence of TensorVariable
        Checks of lengths that are not static.
    """

    def __init__(
        self,
        reads: RowReads,
        columns: frozenset[int],
        codes: Codes,
        dtype: str,
        mask: np.ndarray | None = None,
        conditions: Sequence[TensorVariable] = (),
    ):
        shape = reads.grid.shape
        of_row = codes.of_row
        first = first_rows(of_row, codes.n_cells, rows_in(mask, shape))
        first = first[first >= 0]
        first = first[reads.keys.order(columns, first)]
        number = np.full(codes.n_cells, len(first), dtype=narrowest(len(first) + 1))
        number[of_row[first]] = np.arange(len(first))
        of_row = look_up(number, of_row)
        self.n = len(first)
        self.counts = counts_of(of_row, self.n, rows_in(mask, shape))
        self.rows = rows_by_cell(of_row, self.counts, rows_in(mask, shape))
        self._shape, self._dtype = shape, dtype
        self._chosen_rows = ChosenRows(shape, self.n, conditions)
        self._first = np.unravel_index(first, shape)
        self._chosen: dict[Hashable, np.ndarray] = {}

    def sum_of(self, monomials: list[Monomial]) -> TensorVariable:
        """Return the sum of the parameter parts of monomials, shape ``(n,)`` or ``(1,)``."""
        return add_all(
            -self.of(monomial) if monomial.is_negative else self.of(monomial)
            for monomial in monomials
        )

    def of(self, monomial: Monomial, x: TensorVariable | None = None) -> TensorVariable:
        """Return the parameter part of a monomial in each cell, times ``x``, without the sign."""
        factors = [self._at(factor) for factor in monomial.unknowns if not factor.divides]
        divisors = [self._at(factor) for factor in monomial.unknowns if factor.divides]
        if x is not None:
            factors.insert(0, x)
        if not factors:
            return truediv(1, multiply_all(divisors))
        return reduce(truediv, divisors, multiply_all(factors))

    def _at(self, factor: Factor) -> TensorVariable:
        chosen: Where = {axis: self._position(p) for axis, p in factor.where.items()}
        return in_type(arrange_axes(self._chosen_rows.at(factor.x, chosen), [0]), self._dtype)

    def _position(self, position: int | np.ndarray) -> np.ndarray:
        """Return a position at the first row of each cell. Equal positions return the same array."""
        if isinstance(position, int):
            return self._first[position]
        key = position_key(position)
        if key not in self._chosen:
            self._chosen[key] = np.broadcast_to(position, self._shape)[self._first]
        return self._chosen[key]
