r"""Find columns of a constant matrix that have few distinct rows among them.

Contrasts of a factor (sum, Helmert, polynomial) and their interactions have a distinct row per level, bases of covariates with few values
a distinct row per pair of values. With the distinct rows :math:`d_t` and their number :math:`t_i` in row :math:`i`,

.. math:: \sum_{j \in T} x_{ij} b_j = (D b)_{t_i}.

A column joins the latest table if the multiplications of :math:`D b` grow by at most one per row of the matrix. Otherwise the column
begins a new table. So columns of one factor and its interactions share a table, and crossed factors of many levels do not.

A sample of rows decides which columns are tried. The work for all rows is linear in the entries of these columns.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

# Largest share of distinct values among the rows of a sample, for a column to be tried.
MAX_DISTINCT_SHARE = 0.7


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


def columns_of_tables(sample: np.ndarray, n_rows: int) -> list[list[int]]:
    """Return sets of columns that may have few distinct rows, from some of the rows of a matrix."""
    n_distinct = 1 + np.count_nonzero(np.diff(np.sort(sample, axis=0), axis=0), axis=0)
    tables: list[list[int]] = []
    joint, n_products = np.zeros(len(sample), dtype=int), 0
    for j in np.flatnonzero(n_distinct <= MAX_DISTINCT_SHARE * len(sample)).tolist():
        codes = _refined(joint, sample[:, j])
        with_column = (1 + codes.max()) * (1 + len(tables[-1]) if tables else 1)
        if not tables or with_column - n_products > n_rows:
            tables.append([])
            codes = _refined(np.zeros_like(joint), sample[:, j])
            with_column = 1 + codes.max()
        tables[-1].append(j)
        joint, n_products = codes, with_column
    return tables


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
    is_small = table.rows.size <= most
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
    position = differs.argmax(axis=1)
    scales = (rows - baselines)[np.arange(len(rows)), position]
    order = np.argsort(~is_single, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return RowTable(
        columns,
        columns[position[is_single]],
        scales[is_single],
        (rows - baselines)[~is_single],
        rank[of_row],
        {j: m for j, m in zip(columns.tolist(), baselines.tolist()) if m},
    )
