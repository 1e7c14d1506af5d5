r"""Decide which terms share a loop, over which cells.

A term reads some columns, its key; a *cell* is a set of rows with equal keys. Each term needs
one evaluation for each of its cells, and a loop evaluates all its terms in each of its cells, so a
term may join the loop of a finer key. It does where that costs little: in a loop of at most
:math:`1 / 0.7` times its own cells, or if it is plain arithmetic, next to free beside what the loop
reads anyway, unless it has weights to read and far fewer cells of its own. Subexpressions that terms share are then computed once, and large numbers that
cancel within a row still cancel within a cell, before cells are summed.

Terms whose keys are more than 0.7 of the rows stay in a loop over the rows, and arithmetic with
them. Constants that are only added have a loop of one cell, which is a constant
(:mod:`~pymc_fastlogp.rewrites.rows.compact.summed_constants`).
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

# A loop of its own costs about as much as so many evaluations of a term.
OVERHEAD = 32

# Arithmetic that alone reads its weights is worth a loop over so many times fewer cells.
MIN_CELL_RATIO = 4

UNIT_ROUNDOFF = 2.0**-53

# What the sum may lose for each row.
TOLERANCE = 1e-12


@dataclass(eq=False)
class CellLoop:
    """Terms that are summed over the same cells.

    Attributes
    ----------
    codes : Codes, optional
        Which cell each row is in; None for the loop over the rows themselves.
    key : frozenset of int
        What tells the cells apart: the partitions of :class:`~pymc_fastlogp.rewrites.rows.view.keys.RowKeys`.
    used : numpy.ndarray of bool
        Which of the cells contain a row of one of the terms, shape ``(n_cells,)``.
    terms : list of Term
        What is summed.
    """

    codes: Codes | None
    key: frozenset[int]
    used: np.ndarray
    terms: list[Term]

    @property
    def n_cells(self) -> int:
        """Return how many evaluations of each term the loop takes."""
        return int(self.used.sum())

    @property
    def is_constant(self) -> bool:
        """Return whether nothing is left to evaluate."""
        return self.codes is not None and all(term.factor is None for term in self.terms)


class Grouping:
    """Puts the terms of a reduction into loops.

    Parameters
    ----------
    reads : RowReads
        What the rows read.
    where : mapping
        Which axes of the terms they are.
    """

    def __init__(self, reads: RowReads, where: Where):
        self.row_reads = reads
        self.grid = reads.grid
        self.keys = reads.keys
        self.where = where

    def loops(self, terms: Sequence[Term]) -> list[CellLoop]:
        """Return the loops; that over the rows, where there is one, first."""
        loops: list[CellLoop] = []
        alone = [self.alone(term) for term in terms if term.mask is None or term.mask.any()]
        for own in sorted(alone, key=lambda loop: (loop.is_constant, -loop.n_cells)):
            loop = next((loop for loop in reversed(loops) if self._joins(own, loop)), None)
            if loop is None:
                loops.append(own)
            else:
                loop.used = self._used_by_both(own, loop)
                loop.terms += own.terms
        return loops

    def alone(self, term: Term) -> CellLoop:
        """Return the loop that a term would have for itself."""
        columns = self.reads(term).columns
        codes = self.keys.codes(columns)
        if codes is None:
            return CellLoop(None, frozenset(), np.ones(self.grid.n_rows, dtype=bool), [term])
        return CellLoop(codes, self.keys.partitions(columns), self._used(term, codes), [term])

    def _joins(self, own: CellLoop, loop: CellLoop) -> bool:
        """Return whether a term should rather be in ``loop``, which has not fewer cells, than alone."""
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
        n_cells = int(self._used_by_both(own, loop).sum())
        if MAX_DISTINCT_SHARE * n_cells > loop.n_cells:
            return False
        if n_cells - own.n_cells < OVERHEAD or own.n_cells >= MAX_DISTINCT_SHARE * n_cells:
            return True
        return self.reads(own.terms[0]).is_cheap

    def _used_by_both(self, own: CellLoop, loop: CellLoop) -> np.ndarray:
        return loop.used if loop.codes is None else loop.used | self._used(own.terms[0], loop.codes)

    def _used(self, term: Term, codes: Codes) -> np.ndarray:
        used = np.zeros(codes.n_cells, dtype=bool)
        for rows in rows_in(term.mask, self.grid.shape):
            used[codes.of_row[rows]] = True
        return used

    def reads(self, term: Term) -> ColumnsRead:
        """Return what a term reads that is not the same in all the rows of its mask."""
        if term.factor is None:
            return NO_COLUMNS
        reads = self.row_reads.of(term.factor, self.where)
        if term.mask is None:
            return reads
        return reads._replace(columns=self.keys.differing(reads.columns, term.mask))


def _reads_weights_alone(term: Term, loop: CellLoop) -> bool:
    """Return whether a loop would read the weights of a term for it alone; constants that are only added have rules of their own."""
    read_anyway = {weight for other in loop.terms for weight in other.weights}
    return term.factor is not None and not read_anyway.issuperset(term.weights)


def may_leave(term: Term, n_rows: int) -> bool:
    """Return whether a term is a constant that is added as it stands, and small enough to be summed apart."""
    is_added = term.factor is None and term.mask is None and len(term.weights) == 1
    if not is_added or term.x.type.dtype != "float64":
        return False
    return UNIT_ROUNDOFF * sqrt(n_rows) * _mean_absolute(term.weights[0].data) <= TOLERANCE


def _mean_absolute(values: np.ndarray) -> float:
    flat = values.reshape(-1)
    return sum(float(np.abs(flat[rows]).sum()) for rows in chunks_of(flat.size)) / flat.size
