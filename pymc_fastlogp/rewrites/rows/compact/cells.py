r"""Weight of each cell: the sum of the weights of its rows, or their number. A cell is a set of equal rows.

With :math:`C_u = \sum_{i \in u} c_i` a term is :math:`\sum_i c_i h_i = \sum_u C_u h_u` wherever :math:`h` is finite. If
:math:`h_u` is infinite, the left side is NaN for a zero :math:`c_i`, or for weights of both signs. To be NaN for the
same :math:`h_u`, such a cell keeps two weights, the sums of its positive and of its negative :math:`c_i`:
:math:`C^+_u h_u + C^-_u h_u`. The weight of each other cell is split in halves, which is exact.

Sums are compensated (pandas uses Kahan summation), so a weight is accurate for any number of rows. A sum of finite
weights that overflows raises :class:`OverflowError`.
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
    """The cells of a loop, with the counts and weights of its terms.

    Parameters
    ----------
    loop : CellLoop
        A loop with codes. Cells without a row of one of its terms are left out.
    grid : Grid
        All rows.
    where : mapping
        Axes of the rows.
    dtype : str
        Dtype of the reduction. A narrower dtype of a term would round sums.
    """

    def __init__(self, loop: CellLoop, grid: Grid, where: Where, dtype: str):
        assert loop.codes is not None
        self.n = loop.n_cells
        self.grid = grid
        self.where = where
        self.dtype = dtype
        # An unused cell has the number of another cell, but none of its rows is read.
        number = np.maximum(np.cumsum(loop.used) - 1, 0).astype(narrowest(self.n))
        self._of_row = look_up(number, loop.codes.of_row)
        all_rows = rows_in(None, grid.shape)
        self._first = first_rows(loop.codes.of_row, loop.codes.n_cells, all_rows)[loop.used]

    def rows(self, mask: np.ndarray | None) -> dict[int, np.ndarray]:
        """Return the first row of each cell inside the mask, by axis; a row of another cell if a cell has none.

        Each cell is represented by a row inside the mask. A row outside may have an infinite derivative, and ``0 * inf`` would put NaN
        into the gradient.
        """
        first = self._first
        if mask is not None:
            first = first_rows(self._of_row, self.n, rows_in(mask, self.grid.shape))
            first = np.where(first < 0, first.max(), first)
        positions = np.unravel_index(first, self.grid.shape)
        return {axis: positions[k] for axis, k in self.where.items()}

    def counts(self, mask: np.ndarray | None) -> np.ndarray:
        """Return the number of rows of the mask in each cell, shape ``(n,)``."""
        counts = counts_of(self._of_row, self.n, rows_in(mask, self.grid.shape))
        return self._rounded(counts)

    def weights(self, term: Term) -> list[np.ndarray]:
        """Return the sums of a term's weights in each cell, shapes ``(n, ..)``: one array, or two for mixed signs."""
        sums = self._sums(term, lambda weights: weights)
        if term.factor is None or not (is_mixed := self._is_mixed(term)).any():
            return [sums]
        parts = (self._sums(term, partial(clip, 0)) for clip in (np.maximum, np.minimum))
        return [np.where(is_mixed, part, sums / 2) for part in parts]

    def _sums(self, term: Term, clip: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return the sums over the rows of each cell, accumulated in extended precision."""
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
        """Return sums of finite numbers in the dtype of the reduction."""
        rounded = sums.astype(self.dtype)
        if not np.isfinite(rounded).all():
            raise OverflowError
        return rounded

    def _is_mixed(self, term: Term) -> np.ndarray:
        """Return whether a cell has weights of both signs, or zero and nonzero weights."""
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
        """Return the weights, each broadcastable to the grid and the other axes."""
        return [self.grid.pick(weight.data, self.where) for weight in term.weights]

    def _shape(self, term: Term) -> tuple[int, ...]:
        """Return the shape of a term's weights in a row."""
        shapes = (factor.shape[len(self.where) :] for factor in self._factors(term))
        return np.broadcast_shapes(*shapes)
