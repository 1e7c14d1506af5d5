r"""Find columns of a constant matrix that have few distinct rows among them.

Contrasts of a factor (sum, Helmert, polynomial) and their interactions have a distinct row per level, bases of covariates with few values
a distinct row per pair of values. With the distinct rows :math:`d_t` and their number :math:`t_i` in row :math:`i`,

.. math:: \sum_{j \in T} x_{ij} b_j = (D b)_{t_i}.

Columns of one factor are found first. A column with :math:`d` distinct values adds at most :math:`d - 1` distinct rows to the other columns of
its factor, and multiplies the distinct rows of another factor. Factors then share a table if the multiplications of :math:`D b` grow by at most
one per row of the matrix. So a factor and its interactions with small factors share a table, and crossed factors of many levels do not. Each of
:math:`G` groups with coefficients of its own multiplies a table, and the limits are divided by :math:`G`.

A sample of rows decides which columns are tried. The work for all rows is linear in the entries of these columns.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

# Largest share of distinct values among the rows of a sample, for a column to be tried.
MAX_DISTINCT_SHARE = 0.7
# Number of latest tables that a factor may join.
MOST_TABLES_TRIED = 8


class RowTable(NamedTuple):
    """Columns with few distinct rows.

    Attributes
    ----------
    columns : numpy.ndarray of int
        Numbers of the columns.
    single : numpy.ndarray of int
        The column that is read by each of the first rows of the table, which have at most one entry.
    scales : numpy.ndarray
        The entry of each of these rows, 0 for none.
    rows : numpy.ndarray
        The other rows of the table, shape ``(n_others, len(columns))``.
    of_row : numpy.ndarray of int
        Row of the table for each row of the matrix.
    baselines : dict of int to float
        Nonzero numbers by column that were subtracted from all rows of the table.
    """

    columns: np.ndarray
    single: np.ndarray
    scales: np.ndarray
    rows: np.ndarray
    of_row: np.ndarray
    baselines: dict[int, float]


class _Columns(NamedTuple):
    """Some columns of a sample of rows, and the number of the distinct row that each row has in these columns."""

    columns: list[int]
    of_row: np.ndarray

    @property
    def n_distinct(self) -> int:
        return 1 + int(self.of_row.max())

    @property
    def n_products(self) -> int:
        return self.n_distinct * len(self.columns)

    def with_others(self, others: "_Columns") -> "_Columns":
        return _Columns(self.columns + others.columns, _refined(self.of_row, others.of_row))


def columns_of_tables(sample: np.ndarray, n_rows: float) -> list[list[int]]:
    """Return sets of columns that may have few distinct rows, from some of the rows of a matrix.

    ``n_rows`` is the number of rows of the matrix that share coefficients.
    """
    n_distinct = 1 + np.count_nonzero(np.diff(np.sort(sample, axis=0), axis=0), axis=0)
    factors: list[_Columns] = []
    for j in np.flatnonzero(n_distinct <= MAX_DISTINCT_SHARE * len(sample)).tolist():
        column = _Columns([j], _refined(np.zeros(len(sample), dtype=int), sample[:, j]))
        joint = factors[-1].with_others(column) if factors else column
        if factors and joint.n_distinct - factors[-1].n_distinct < column.n_distinct:
            factors[-1] = joint
        else:
            factors.append(column)
    tables: list[_Columns] = []
    for factor in factors:
        for k in reversed(range(max(0, len(tables) - MOST_TABLES_TRIED), len(tables))):
            joint = tables[k].with_others(factor)
            if joint.n_products - tables[k].n_products - factor.n_products <= n_rows:
                tables[k] = joint
                break
        else:
            tables.append(factor)
    return [table.columns for table in tables]


def row_table(x: np.ndarray, columns: list[int], most: float) -> RowTable | None:
    """Return the distinct rows of some columns of a matrix.

    Parameters
    ----------
    x : numpy.ndarray
        Matrix of real numbers.
    columns : list of int
        Numbers of the columns.
    most : float
        Largest number of multiplications of the table with its coefficients.

    Returns
    -------
    RowTable or None
        None if rows hardly repeat, or if entries are not finite.
    """
    of_row = np.zeros(len(x), dtype=int)
    first = np.zeros(1, dtype=int)
    for j in columns:
        column = x[:, j].astype("float64")
        if (column == column[first][of_row]).all():
            continue
        of_row = _refined(of_row, column)
        # Codes are numbered by first occurrence.
        first = np.flatnonzero(np.diff(np.maximum.accumulate(of_row), prepend=-1))
        if len(first) > MAX_DISTINCT_SHARE * len(x):
            return None
    table = _with_single_entries(np.array(columns), x[first][:, columns].astype("float64"), of_row)
    is_small = table.rows.size + len(table.single) <= most
    return table if is_small and np.isfinite(table.rows).all() else None


def _refined(codes: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Return codes that also differ where a column does, numbered by first occurrence."""
    of_column, distinct = pd.factorize(column, use_na_sentinel=False)
    refined: np.ndarray = pd.factorize(codes * len(distinct) + of_column)[0]
    return refined


def _with_single_entries(columns: np.ndarray, rows: np.ndarray, of_row: np.ndarray) -> RowTable:
    """Return a table whose rows with one entry beside the baselines come first, if most rows are so."""
    baselines = np.partition(rows, len(rows) // 2, axis=0)[len(rows) // 2]
    differs = rows != baselines
    is_single = np.count_nonzero(differs, axis=1) <= 1
    if 2 * np.count_nonzero(is_single) < len(rows):
        is_single[:] = False
        baselines[:] = 0
    n_single = np.count_nonzero(is_single)
    position = differs.argmax(axis=1)
    scales = (rows - baselines)[np.arange(len(rows)), position]
    order = np.lexsort([position, ~is_single])
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return RowTable(
        columns,
        columns[position[order[:n_single]]],
        scales[order[:n_single]],
        (rows - baselines)[order[n_single:]],
        rank[of_row],
        {j: m for j, m in zip(columns.tolist(), baselines.tolist()) if m},
    )
