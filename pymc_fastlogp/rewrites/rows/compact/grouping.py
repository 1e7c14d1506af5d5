r"""Group terms into loops over cells.

The key of a term consists of the columns that the term reads. A *cell* is a set of rows with equal keys. A term alone
needs one evaluation per cell of the term's key. A loop evaluates all its terms in each of its cells, so a term can join a
loop with a finer key:

- A term joins if the loop has at most :math:`1 / 0.7` times as many cells as the term.
- Plain arithmetic always joins, unless the term would add weight loads for at least four times as many cells.
- Terms whose keys are at least 0.7 of the rows stay in a loop over the rows.
- Constants that are only added have a loop with one cell, which is a constant.

Shared subexpressions are then computed once, and large numbers that cancel within a row still cancel within a cell.

**Constants that leave the sum.**

.. math::

    \sum_i (f_i - c_i) = \sum_i f_i - C, \qquad C = \sum_i c_i

saves one load of :math:`c_i` per row. :math:`C` is exact to its last digit. Partial sums of :math:`f_i` may exceed
partial sums of :math:`f_i - c_i` by :math:`\sum_i |c_i|`. Each addition rounds by at most :math:`u = 2^{-53}` times the
partial sum, with random signs. So :math:`n` additions lose about :math:`u \sqrt{n} \sum_i |c_i|`. A log density is of
order one per row, and the loss must stay below :math:`10^{-12} n`. So the ``gammaln(y + 1)`` of 5000 Poisson counts
leaves the sum if the mean is below 127. For 1e7 rows the limit is 2.8. Constants near 1e9 stay in the rows, where they
cancel.

A constant also stays if a switch reads its mask anyway, or if a product would have to be expanded:
:math:`x_i (y_i - \mu_i)` in a gradient shares :math:`y_i - \mu_i` with other terms.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from pymc_fastlogp.analysis.gathers import Where
from pymc_fastlogp.rewrites.rows.compact.terms import Term
from pymc_fastlogp.rewrites.rows.view.chunks import chunks_of, rows_in
from pymc_fastlogp.rewrites.rows.view.columns import NO_COLUMNS, ColumnsRead, RowReads
from pymc_fastlogp.rewrites.rows.view.keys import MAX_DISTINCT_SHARE, Codes

# Evaluations of a term that cost as much as one more loop.
OVERHEAD = 32

# Ratio of cells at which arithmetic that would add weight loads gets a separate loop.
MIN_CELL_RATIO = 4

UNIT_ROUNDOFF = 2.0**-53

# Largest acceptable loss of the sum per row.
TOLERANCE = 1e-12


@dataclass(eq=False)
class CellLoop:
    """Terms that are summed over the same cells.

    Attributes
    ----------
    codes : Codes, optional
        The cell of each row; None for a loop over the rows.
    key : frozenset of int
        Columns that distinguish cells: the partitions of :class:`~pymc_fastlogp.rewrites.rows.view.keys.RowKeys`.
    used : numpy.ndarray of bool
        Cells that contain a row of one of the terms, shape ``(n_cells,)``.
    terms : list of Term
        Terms of the loop.
    """

    codes: Codes | None
    key: frozenset[int]
    used: np.ndarray
    terms: list[Term]

    @property
    def n_cells(self) -> int:
        """Return the number of evaluations of each term."""
        return int(self.used.sum())

    @property
    def is_constant(self) -> bool:
        """Return whether all terms are constants."""
        return self.codes is not None and all(term.factor is None for term in self.terms)


class Grouping:
    """Assigns the terms of a reduction to loops.

    Parameters
    ----------
    reads : RowReads
        Columns that the rows read.
    where : mapping
        Axes of the rows.
    """

    def __init__(self, reads: RowReads, where: Where):
        self.row_reads = reads
        self.grid = reads.grid
        self.keys = reads.keys
        self.where = where

    def loops(self, terms: Sequence[Term]) -> list[CellLoop]:
        """Return the loops. A loop over the rows comes first."""
        loops: list[CellLoop] = []
        alone = [self.alone(term) for term in terms if term.mask is None or term.mask.any()]
        for own in sorted(alone, key=lambda loop: (loop.is_constant, -loop.n_cells)):
            loop = next((loop for loop in reversed(loops) if self._joins(own, loop)), None)
            if loop is None:
                loops.append(own)
            else:
                loop.used = self._occupied_by_both(own, loop)
                loop.terms += own.terms
        return loops

    def alone(self, term: Term) -> CellLoop:
        """Return the loop of a term by itself."""
        columns = self.reads(term).columns
        codes = self.keys.codes(columns)
        if codes is None:
            return CellLoop(None, frozenset(), np.ones(self.grid.n_rows, dtype=bool), [term])
        return CellLoop(codes, self.keys.partitions(columns), self._occupied(term, codes), [term])

    def _joins(self, own: CellLoop, loop: CellLoop) -> bool:
        """Return whether a term joins ``loop``, which has at least as many cells."""
        if loop.codes is not None and not own.key <= loop.key:
            return False
        is_apart = may_leave(own.terms[0], self.grid.n_rows)
        if is_apart or loop.is_constant:
            return is_apart and loop.is_constant
        if own.codes is None:
            return loop.codes is None
        if MIN_CELL_RATIO * own.n_cells <= loop.n_cells and _reads_weights_alone(
            own.terms[0], loop
        ):
            return False
        n_cells = int(self._occupied_by_both(own, loop).sum())
        if MAX_DISTINCT_SHARE * n_cells > loop.n_cells:
            return False
        if n_cells - own.n_cells < OVERHEAD or own.n_cells >= MAX_DISTINCT_SHARE * n_cells:
            return True
        return self.reads(own.terms[0]).is_cheap

    def _occupied_by_both(self, own: CellLoop, loop: CellLoop) -> np.ndarray:
        """Return which cells of ``loop`` have a row of ``loop`` or of the terms of ``own``."""
        return (
            loop.used
            if loop.codes is None
            else loop.used | self._occupied(own.terms[0], loop.codes)
        )

    def _occupied(self, term: Term, codes: Codes) -> np.ndarray:
        """Return which cells have a row inside the mask of a term."""
        used = np.zeros(codes.n_cells, dtype=bool)
        for rows in rows_in(term.mask, self.grid.shape):
            used[codes.of_row[rows]] = True
        return used

    def reads(self, term: Term) -> ColumnsRead:
        """Return the columns of a term that vary within its mask."""
        if term.factor is None:
            return NO_COLUMNS
        reads = self.row_reads.of(term.factor, self.where)
        if term.mask is None:
            return reads
        return reads._replace(columns=self.keys.differing(reads.columns, term.mask))


def _reads_weights_alone(term: Term, loop: CellLoop) -> bool:
    """Return whether a loop would read the weights of a term for this term alone. Constants that are only added do not count."""
    read_anyway = {weight for other in loop.terms for weight in other.weights}
    return term.factor is not None and not read_anyway.issuperset(term.weights)


def may_leave(term: Term, n_rows: int) -> bool:
    """Return whether a term is a constant that is only added, and small enough to be summed separately."""
    is_added = term.factor is None and term.mask is None and len(term.weights) == 1
    if not is_added or term.x.type.dtype != "float64":
        return False
    return UNIT_ROUNDOFF * sqrt(n_rows) * _mean_absolute(term.weights[0].data) <= TOLERANCE


def _mean_absolute(values: np.ndarray) -> float:
    flat = values.reshape(-1)
    return sum(float(np.abs(flat[rows]).sum()) for rows in chunks_of(flat.size)) / flat.size
