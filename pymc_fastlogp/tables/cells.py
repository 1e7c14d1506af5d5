r"""Distinct rows with counts: the summary of rows by which a log density can be evaluated exactly.

.. math::

    \sum_{i=1}^N f(x_i) = \sum_u n_u f(u), \qquad n_u = \#\{i : x_i = u\}

Summaries of parts of a table merge by adding the counts of equal rows, in any order: cells are a commutative monoid, which is all that
a summary of rows has to be. Counts are integers, so merging is exact. ``-0.0`` is stored as ``0.0``, because engines do not tell them apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np
import pandas as pd

# Integers in a smaller range are codes by themselves.
MAX_RANGE = 2**16
# Joint codes of several columns stay below.
MAX_CODE = 2**62


class Points(NamedTuple):
    """Rows that a log density is evaluated at: columns by name, and weights if rows are merged."""

    columns: Mapping[str, np.ndarray]
    weights: np.ndarray | None


class Summary(Protocol):
    """Summary of rows, a commutative monoid of arrays: :class:`Cells`, :class:`AllRows` or :class:`~pymc_fastlogp.tables.factors.Factors`."""

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        ...

    @property
    def n_cells(self) -> int:
        """Return the number of cells."""
        ...

    def merge(self, other: Self) -> Self:
        """Return the summary of the rows of both."""
        ...

    def points(self, dtype: str) -> Points:
        """Return rows by which the sum over all rows is evaluated. ``dtype`` is that of columns that are means of rows."""
        ...


@dataclass(frozen=True)
class AllRows:
    """Rows as they are."""

    columns: Mapping[str, np.ndarray]

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.columns.values())))

    @property
    def n_cells(self) -> int:
        """Return the number of rows."""
        return self.n_rows

    def merge(self, other: "AllRows") -> "AllRows":
        """Return the rows of both."""
        return AllRows(
            {name: np.concatenate([x, other.columns[name]]) for name, x in self.columns.items()}
        )

    def points(self, dtype: str) -> Points:
        """Return the rows."""
        return Points(self.columns, None)


@dataclass(frozen=True)
class Cells:
    """Distinct rows in lexicographic order, with the number of rows that equal each.

    Attributes
    ----------
    columns : dict of str to ndarray
        Columns of the distinct rows, without NaN.
    counts : ndarray of int64
        Number of rows.
    """

    columns: Mapping[str, np.ndarray]
    counts: np.ndarray

    @classmethod
    def summarize(cls, rows: Mapping[str, np.ndarray], counts: np.ndarray | None = None) -> "Cells":
        """Return the distinct rows of columns; with ``counts``, each row counts that many times."""
        columns = {name: without_negative_zero(x) for name, x in rows.items()}
        order, starts = sort_by_cell(columns, len(next(iter(columns.values()))))
        if counts is None:
            of_cells = np.diff(starts, append=len(order))
        elif len(order):
            of_cells = np.add.reduceat(np.asarray(counts, np.int64)[order], starts)
        else:
            of_cells = np.zeros(0, np.int64)
        first = order[starts]
        return cls({name: x[first] for name, x in columns.items()}, of_cells)

    def merge(self, other: "Cells") -> "Cells":
        """Return the cells of the rows of both."""
        columns = {
            name: np.concatenate([x, other.columns[name]]) for name, x in self.columns.items()
        }
        return Cells.summarize(columns, np.concatenate([self.counts, other.counts]))

    def points(self, dtype: str) -> Points:
        """Return the distinct rows, weighted by their counts."""
        return Points(self.columns, self.counts.astype(np.float64))

    @property
    def n_cells(self) -> int:
        """Return the number of distinct rows."""
        return len(self.counts)

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return int(self.counts.sum())


class RowsByCell(NamedTuple):
    """An order that sorts rows lexicographically, stable, and the places in it where distinct rows start."""

    order: np.ndarray
    starts: np.ndarray


def sort_by_cell(columns: Mapping[str, np.ndarray], n_rows: int) -> RowsByCell:
    """Sort rows by the values of columns. Rows without columns are one cell."""
    code, n_codes = np.zeros(n_rows, np.int64), 1
    for x in columns.values():
        codes, n = _codes(x)
        if n_codes * n > MAX_CODE:
            distinct, code = np.unique(code, return_inverse=True)
            n_codes = len(distinct)
        code, n_codes = code * n + codes, n_codes * n
    # NumPy sorts integers of 16 bits in linear time.
    code = code.astype(np.min_scalar_type(n_codes - 1))
    order = np.argsort(code, kind="stable")
    in_order = code[order]
    is_first = np.ones(n_rows, bool)
    is_first[1:] = in_order[1:] != in_order[:-1]
    return RowsByCell(order, np.flatnonzero(is_first))


def _codes(x: np.ndarray) -> tuple[np.ndarray, int]:
    """Return codes in the order of the values, and a bound on them."""
    if x.dtype == bool:
        return x.astype(np.int64), 2
    if x.dtype.kind == "i" and len(x):
        low, high = int(x.min()), int(x.max())
        if high - low < MAX_RANGE:
            return x - low, high - low + 1
    codes, distinct = pd.factorize(x, sort=True)
    return codes, max(len(distinct), 1)


def without_negative_zero(x: np.ndarray) -> np.ndarray:
    """Return numbers with ``0.0`` in place of ``-0.0``."""
    return x + 0.0 if x.dtype.kind == "f" else x
