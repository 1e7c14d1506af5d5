r"""Sums over the rows of a cell, as constants: how many there are, and the sums of their weights.

With :math:`C_u = \sum_{i \in u} c_i` a term is :math:`\sum_i c_i h_i = \sum_u C_u h_u` wherever
:math:`h` is finite. Where :math:`h_u` is infinite the left side is nan if a :math:`c_i` is zero or
two of them have different signs, the right side is not. So that it is, such a cell keeps two
weights, the sums of its positive and of its negative :math:`c_i`: :math:`C^+_u h_u + C^-_u h_u` is
nan at the same :math:`h_u`. The weight of other cells is halved, which is exact.

Sums are compensated (pandas groups by Kahan's algorithm), so that a weight is right to the last
digits however many rows a cell has.
"""

from functools import reduce
from math import prod

import numpy as np
import pandas as pd

from pymc_fastlogp.rewrites.gathers import Where
from pymc_fastlogp.rewrites.row_keys import first_rows, narrowest
from pymc_fastlogp.rewrites.row_loops import Loop, at_rows_of
from pymc_fastlogp.rewrites.row_terms import Term
from pymc_fastlogp.rewrites.row_views import Grid

# Rows that are grouped at a time, so that the memory for it does not grow with their number.
CHUNK = 1_000_000


class Cells:
    """The cells of a loop, and what its terms need to know of each.

    Parameters
    ----------
    loop : Loop
        With codes. Cells that none of its terms has a row in are left out.
    grid : Grid
        All the rows.
    where : mapping
        Which axes of the terms they are.
    dtype : str
        Of what is reduced. A term may have a smaller one, in which a sum would not be exact.
    """

    def __init__(self, loop: Loop, grid: Grid, where: Where, dtype: str):
        assert loop.codes is not None
        self.n = loop.n_cells
        self.grid = grid
        self.where = where
        self.dtype = dtype
        # Of a cell that is not used the number is another's, but none of its rows is looked at.
        number = np.maximum(np.cumsum(loop.used) - 1, 0).astype(narrowest(self.n))
        self._of_row = number[loop.codes.of_row]
        self._first = first_rows(loop.codes.of_row)[loop.used]

    def rows(self, mask: np.ndarray | None) -> dict[int, np.ndarray]:
        """Return the first row of each cell that is in the mask, by axis; any where none is."""
        first = self._first
        if mask is not None:
            rows = np.flatnonzero(np.broadcast_to(mask, self.grid.shape))
            first_in_mask = rows[first_rows(self._of_row[rows])]
            first = first.copy()
            first[self._of_row[first_in_mask]] = first_in_mask
        positions = np.unravel_index(first, self.grid.shape)
        return {axis: positions[k] for axis, k in self.where.items()}

    def counts(self, mask: np.ndarray | None) -> np.ndarray:
        """Return how many rows of the mask each cell has, shape ``(n,)``."""
        of_row = at_rows_of(mask, self.grid, self._of_row)
        return np.bincount(of_row, minlength=self.n).astype(self.dtype)

    def weights(self, term: Term) -> list[np.ndarray]:
        """Return the sums of a term's weights in each cell, shapes ``(n, ..)``: one, or two parts."""
        of_row, weights = self._weights_of_rows(term)
        sums = sum_by_cell(weights, of_row, self.n)
        if term.factor is None or (weights > 0).all() or (weights < 0).all():
            return [sums]
        is_mixed = self._is_mixed(weights, of_row)
        if not is_mixed.any():
            return [sums]
        parts = (sum_by_cell(clip(weights, 0), of_row, self.n) for clip in (np.maximum, np.minimum))
        return [np.where(is_mixed, part, sums / 2) for part in parts]

    def _is_mixed(self, weights: np.ndarray, of_row: np.ndarray) -> np.ndarray:
        """Whether weights of a cell have different signs, or some but not all of them are zero."""
        by_column = weights.reshape(len(weights), -1)
        n_signs = np.zeros((self.n, by_column.shape[1]), dtype="int8")
        for column, n_signs_of_column in zip(by_column.T, n_signs.T):
            for has_sign in (column > 0, column < 0, column == 0):
                is_in_cell = np.zeros(self.n, dtype="int8")
                is_in_cell[of_row[has_sign]] = 1
                n_signs_of_column += is_in_cell
        return n_signs.reshape(self.n, *weights.shape[1:]) > 1

    def _weights_of_rows(self, term: Term) -> tuple[np.ndarray, np.ndarray]:
        """Return the cell, and the product of the weights, of each row in a term's mask."""
        factors = (
            self.grid.pick(w.data.astype(self.dtype, copy=False), self.where) for w in term.weights
        )
        product = reduce(np.multiply, factors)
        rest = product.shape[len(self.where) :]
        of_row = np.broadcast_to(product, (*self.grid.shape, *rest)).reshape(-1, *rest)
        return (
            at_rows_of(term.mask, self.grid, self._of_row),
            at_rows_of(term.mask, self.grid, of_row),
        )


def sum_by_cell(values: np.ndarray, of_row: np.ndarray, n_cells: int) -> np.ndarray:
    """Return sums of values, shape ``(n_rows, ..)``, over the rows of each cell."""
    sums = np.zeros((n_cells, prod(values.shape[1:])), dtype=np.longdouble)
    for begin in range(0, len(values), CHUNK):
        rows = slice(begin, begin + CHUNK)
        of_chunk = values[rows].reshape(-1, sums.shape[1]).astype("float64", copy=False)
        chunk = pd.DataFrame(of_chunk).groupby(of_row[rows]).sum()
        sums[chunk.index] += chunk.to_numpy()
    return sums.reshape(n_cells, *values.shape[1:]).astype(values.dtype)
