r"""Distinct rows with counts: the summary of rows by which a log density can be evaluated exactly.

.. math::

    \sum_{i=1}^N f(x_i) = \sum_u n_u f(u), \qquad n_u = \#\{i : x_i = u\}

Summaries of parts of a table merge by adding the counts of equal rows, in any order: cells are a commutative monoid, which is all that
a summary of rows has to be. Counts are integers, so merging is exact. ``-0.0`` is stored as ``0.0``, because engines do not tell them apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np


class Summary(Protocol):
    """Summary of rows: :class:`Cells`, or another commutative monoid."""

    @classmethod
    def summarize(cls, rows: Mapping[str, np.ndarray]) -> Self:
        """Return the summary of rows, given as columns by name."""
        ...

    def merge(self, other: Self) -> Self:
        """Return the summary of the rows of both summaries."""
        ...


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
        columns = {name: _without_negative_zero(x) for name, x in rows.items()}
        n_rows = len(next(iter(columns.values())))
        if counts is None:
            counts = np.ones(n_rows, np.int64)
        order = np.lexsort([*columns.values()][::-1])
        columns = {name: x[order] for name, x in columns.items()}
        is_first = np.zeros(n_rows, bool)
        is_first[:1] = True
        for x in columns.values():
            is_first[1:] |= x[1:] != x[:-1]
        [starts] = np.nonzero(is_first)
        if n_rows:
            counts = np.add.reduceat(np.asarray(counts, np.int64)[order], starts)
        return cls({name: x[starts] for name, x in columns.items()}, counts)

    def merge(self, other: "Cells") -> "Cells":
        """Return the cells of the rows of both."""
        columns = {
            name: np.concatenate([x, other.columns[name]]) for name, x in self.columns.items()
        }
        return Cells.summarize(columns, np.concatenate([self.counts, other.counts]))

    @property
    def n_cells(self) -> int:
        """Return the number of distinct rows."""
        return len(self.counts)

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return int(self.counts.sum())


def _without_negative_zero(x: np.ndarray) -> np.ndarray:
    return x + 0.0 if x.dtype.kind == "f" else x
