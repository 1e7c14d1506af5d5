r"""Sums over the rows of a cell, as constants: how many there are, and the sums of their weights.

With :math:`C_u = \sum_{i \in u} c_i` a term is :math:`\sum_i c_i h_i = \sum_u C_u h_u` wherever
:math:`h` is finite. Where :math:`h_u` is infinite the left side is nan if a :math:`c_i` is zero or
two of them have different signs, the right side is not. So that it is, such a cell keeps two
weights, the sums of its positive and of its negative :math:`c_i`: :math:`C^+_u h_u + C^-_u h_u` is
nan at the same :math:`h_u`. The weight of other cells is halved, which is exact.

Sums are compensated (pandas groups by Kahan's algorithm), so that a weight is right to the last
digits however many rows a cell has. One that has no number, where each of the rows has, is an :class:`OverflowError`.
"""

from collections.abc import Callable, Iterator
from functools import partial, reduce
from math import prod

import numpy as np
import pandas as pd

from pymc_fastlogp.analysis.gathers import Where
from pymc_fastlogp.rewrites.rows.compact.grouping import CellLoop
from pymc_fastlogp.rewrites.rows.compact.terms import Term
from pymc_fastlogp.rewrites.rows.view.chunks import (
    at_rows,
    counts_of,
    first_rows,
    look_up,
    narrowest,
    rows_in,
)
from pymc_fastlogp.rewrites.rows.view.grid import Grid


class WeightedCells:
    """The cells of a loop, and what its terms need to know of each.

    Parameters
    ----------
    loop : CellLoop
        With codes. WeightedCells that none of its terms has a row in are left out.
    grid : Grid
        All the rows.
    where : mapping
        Which axes of the terms they are.
    dtype : str
        Of what is reduced. A term may have a smaller one, in which a sum would not be exact.
    """

    def __init__(self, loop: CellLoop, grid: Grid, where: Where, dtype: str):
        assert loop.codes is not None
        self.n = loop.n_cells
        self.grid = grid
        self.where = where
        self.dtype = dtype
        # Of a cell that is not used the number is another's, but none of its rows is looked at.
        number = np.maximum(np.cumsum(loop.used) - 1, 0).astype(narrowest(self.n))
        self._of_row = look_up(number, loop.codes.of_row)
        all_rows = rows_in(None, grid.shape)
        self._first = first_rows(loop.codes.of_row, loop.codes.n_cells, all_rows)[loop.used]

    def rows(self, mask: np.ndarray | None) -> dict[int, np.ndarray]:
        """Return the first row of each cell that is in the mask, by axis; another cell's where none is.

        What a row outside of the mask reads may be where the derivative of the term is infinite, and zero times that is nan, although
        nothing of the cell counts. One of the mask is one that counts.
        """
        first = self._first
        if mask is not None:
            first = first_rows(self._of_row, self.n, rows_in(mask, self.grid.shape))
            first = np.where(first < 0, first.max(), first)
        positions = np.unravel_index(first, self.grid.shape)
        return {axis: positions[k] for axis, k in self.where.items()}

    def counts(self, mask: np.ndarray | None) -> np.ndarray:
        """Return how many rows of the mask each cell has, shape ``(n,)``."""
        counts = counts_of(self._of_row, self.n, rows_in(mask, self.grid.shape))
        return self._rounded(counts)

    def weights(self, term: Term) -> list[np.ndarray]:
        """Return the sums of a term's weights in each cell, shapes ``(n, ..)``: one, or two parts."""
        sums = self._sums(term, lambda weights: weights)
        if term.factor is None or not (is_mixed := self._is_mixed(term)).any():
            return [sums]
        parts = (self._sums(term, partial(clip, 0)) for clip in (np.maximum, np.minimum))
        return [np.where(is_mixed, part, sums / 2) for part in parts]

    def _sums(self, term: Term, clip: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return the sums over the rows of each cell, in extended precision until the end."""
        sums = np.zeros((self.n, prod(self._shape(term))), dtype=np.longdouble)
        are_finite = True
        for cells, weights in self._chunks(term):
            by_column = clip(weights).reshape(-1, sums.shape[1]).astype("float64", copy=False)
            of_chunk = pd.DataFrame(by_column).groupby(cells).sum()
            sums[of_chunk.index] += of_chunk.to_numpy()
            are_finite &= bool(np.isfinite(by_column).all())
        sums = sums.reshape(self.n, *self._shape(term))
        return self._rounded(sums) if are_finite else sums.astype(self.dtype)

    def _rounded(self, sums: np.ndarray) -> np.ndarray:
        """Return sums of finite numbers in the precision of what is reduced."""
        rounded = sums.astype(self.dtype)
        if not np.isfinite(rounded).all():
            raise OverflowError
        return rounded

    def _is_mixed(self, term: Term) -> np.ndarray:
        """Return whether weights of a cell have different signs, or some but not all of them are zero."""
        signs = np.zeros((3, self.n, *self._shape(term)), dtype=bool)
        for cells, weights in self._chunks(term):
            for seen, has_sign in zip(signs, (weights > 0, weights < 0, weights == 0)):
                row, *column = np.nonzero(has_sign)
                seen[cells[row], *column] = True
        return signs.sum(axis=0) > 1

    def _chunks(self, term: Term) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the cells, and the products of the weights, of the rows in a term's mask."""
        factors = self._factors(term)
        for rows in rows_in(term.mask, self.grid.shape):
            of_rows = (
                at_rows(factor, rows, self.grid.shape).astype(self.dtype, copy=False)
                for factor in factors
            )
            yield self._of_row[rows], reduce(np.multiply, of_rows)

    def _factors(self, term: Term) -> list[np.ndarray]:
        """Return the weights, each broadcastable to the grid and what other axes there are."""
        return [self.grid.pick(weight.data, self.where) for weight in term.weights]

    def _shape(self, term: Term) -> tuple[int, ...]:
        """Return the shape of a term's weights in a row."""
        shapes = (factor.shape[len(self.where) :] for factor in self._factors(term))
        return np.broadcast_shapes(*shapes)
