r"""Split the columns of a constant matrix into blocks of disjoint columns and dense columns.

A column :math:`x_j = m_j + d_j` is a *baseline* :math:`m_j`, the value of most rows, plus differences :math:`d_j`. Dummy
columns, their interactions, splines and products of dummies with covariates have differences in few rows. Columns whose
differences are in different rows are disjoint. A *block* of disjoint columns has at most one difference per row:

.. math:: \sum_{j \in B} d_{ij} b_j = v_i \, b_{c_i}

Columns with proportional differences, :math:`d_k = s d_j`, share a column with the coefficient :math:`b_j + s b_k`.

Other columns may have few distinct rows among them (:mod:`~pymc_fastlogp.analysis.row_tables`). They become a table, which costs a block and
the multiplications of its rows, if that is at most 3/4 of the cost of dense columns, or of at least 8 blocks.

The columns are colored greedily: each column joins the latest block in which all its rows are free. The levels of a
factor are adjacent columns, so each factor becomes a block of its own. Overlapping columns of a spline of degree
:math:`k` become :math:`k + 1` blocks.

The work is linear in the entries of the matrix. A sample of rows comes first. A matrix without blocks in the sample costs
no more than the sample.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from pymc_fastlogp.analysis.row_tables import RowTable, columns_of_tables, row_table

# Rows of the sample. The number is odd, so that the median is an entry.
SAMPLE = 1025
# Entries that are converted at once.
CHUNK = 4_000_000
# Most blocks that are open while columns are colored.
MAX_BLOCKS = 32
# Fewest blocks that a table of distinct rows replaces. Fewer blocks keep their indices, which other rules read.
MANY_BLOCKS = 8
# Largest cost of a table, relative to its columns, and of the split matrix, relative to the whole matrix.
MAX_COST_SHARE = 0.75
# Most blocks of a sparse matrix, and most rows of the blocks relative to the entries: rows without an entry are gathered, too. Beyond these limits a
# product that skips zeros is faster.
MAX_SPARSE_BLOCKS, MAX_FILL = 8, 1.5
# Ratios between proportional columns. Others could overflow or underflow before they meet the coefficient.
SMALLEST_RATIO, LARGEST_RATIO = 2.0**-100, 2.0**100


class Entries(NamedTuple):
    """Rows in which a column differs from its baseline, ascending, and the differences."""

    rows: np.ndarray
    values: np.ndarray


class Block(NamedTuple):
    """Disjoint columns.

    Attributes
    ----------
    columns : numpy.ndarray of int
        Numbers of the columns.
    of_row : numpy.ndarray of int
        Position in ``columns`` of the column that differs in each row, -1 for none; shape ``(n,)``.
    values : numpy.ndarray
        The difference in each row, 0 for none; shape ``(n,)``.
    scales : numpy.ndarray, optional
        The difference of each column, if all rows of a column have the same; shape ``(len(columns),)``.
    """

    columns: np.ndarray
    of_row: np.ndarray
    values: np.ndarray
    scales: np.ndarray | None


class Proportional(NamedTuple):
    """Columns whose differences are ``scales`` times those of ``first``; ``first`` is not among the columns."""

    first: int
    columns: list[int]
    scales: list[float]


class ColumnBlocks(NamedTuple):
    """A matrix as baselines, blocks and dense columns.

    Attributes
    ----------
    baselines : dict of int to float
        Nonzero baselines of columns.
    blocks : list of Block
        Blocks. Of proportional columns only the first is in a block.
    proportional : list of Proportional
        Columns with the same rows and proportional differences.
    tables : list of RowTable
        Columns with few distinct rows.
    dense : numpy.ndarray of int
        Numbers of the dense columns, which have no baseline.
    """

    baselines: dict[int, float]
    blocks: list[Block]
    proportional: list[Proportional]
    tables: list[RowTable]
    dense: np.ndarray


def column_blocks(x: np.ndarray, fewest: int, n_groups: int = 1) -> ColumnBlocks | None:
    """Split the columns of a matrix of real numbers.

    Parameters
    ----------
    x : numpy.ndarray
        Matrix of booleans, integers or floats, with at least one row.
    fewest : int
        Least number of columns of a block: the cost of a block, in dense columns.
    n_groups : int
        Number of groups of rows with coefficients of their own. The distinct rows of a table are multiplied once per group.

    Returns
    -------
    ColumnBlocks or None
        None if blocks save too little, or if entries of the columns in blocks are not finite.
    """
    sample = _sample(x)
    baselines = np.partition(sample, len(sample) // 2, axis=0)[len(sample) // 2]
    differs = sample != baselines
    sparse = np.flatnonzero(2 * np.count_nonzero(differs, axis=0) <= len(sample))
    if not np.isfinite(sample).all():
        return None
    rows = (np.flatnonzero(differs[:, j]) for j in sparse)
    groups = _colored(rows, sparse.tolist(), len(sample), fewest)
    tables = _tables(x, sample, groups, fewest, n_groups)
    in_table = {j for table in tables for j in table.columns.tolist()}
    kept = sorted(j for group in groups for j in group if j not in in_table)
    return _of_all_rows(x, kept, tables, baselines, fewest) if kept or tables else None


def blocks_of_sparse(x: Any) -> list[Block] | None:
    """Split the columns of a sparse matrix into blocks, whose baselines are zero.

    Parameters
    ----------
    x : scipy.sparse.spmatrix
        Matrix with entries, in CSR or CSC format.

    Returns
    -------
    list of Block or None
        None if there are many blocks, or if they have many rows without an entry.
    """
    n_rows = x.shape[0]
    x = x.tocsc(copy=True)
    x.sum_duplicates()
    most = min(MAX_SPARSE_BLOCKS, MAX_FILL * x.nnz / n_rows)
    if np.bincount(x.indices).max() > most:
        return None
    parts = zip(np.split(x.indices, x.indptr[1:-1]), np.split(x.data, x.indptr[1:-1]))
    entries = [Entries(*part) for part in parts]
    columns = [j for j, (rows, _) in enumerate(entries) if len(rows)]
    groups = _colored((entries[j].rows for j in columns), columns, n_rows, 1)
    if len(groups) > most or sum(map(len, groups)) < len(columns):
        return None
    return [_block(group, [entries[j] for j in group], n_rows) for group in groups]


def _sample(x: np.ndarray) -> np.ndarray:
    """Return some rows as float64, all if there are few."""
    if len(x) > SAMPLE:
        x = x[np.sort(np.random.default_rng(0).choice(len(x), SAMPLE, replace=False))]
    return x.astype("float64")


def _tables(
    x: np.ndarray, sample: np.ndarray, groups: list[list[int]], fewest: int, n_groups: int
) -> list[RowTable]:
    """Return the tables of distinct rows that cost less than blocks and dense columns."""
    in_group = {j for group in groups for j in group}
    rows_per_group = len(x) / n_groups
    tables = []
    for columns in columns_of_tables(sample, rows_per_group):
        n_blocks = sum(set(columns).issuperset(group) for group in groups)
        n_blocks = n_blocks if n_blocks >= MANY_BLOCKS else 0
        n_dense = len(set(columns) - in_group)
        most = MAX_COST_SHARE * (fewest * n_blocks + n_dense) - fewest
        if most > 0 and (table := row_table(x, columns, most * rows_per_group)) is not None:
            tables.append(table)
    return tables


def _of_all_rows(
    x: np.ndarray, columns: list[int], tables: list[RowTable], baselines: np.ndarray, fewest: int
) -> ColumnBlocks | None:
    """Split some of the columns by all rows, and leave the columns that are in no table dense."""
    entries = _entries(x, np.array(columns), baselines[columns]) if columns else []
    if entries is None:
        return None
    of_column = dict(zip(columns, entries))
    proportional = _proportional(of_column)
    others = {j for each in proportional for j in each.columns}
    first = [j for j, (rows, _) in of_column.items() if len(rows) and j not in others]
    groups = _colored((of_column[j].rows for j in first), first, len(x), fewest)
    blocks = [_block(group, [of_column[j] for j in group], len(x)) for group in groups]
    in_block = {j for group in groups for j in group}
    proportional = [each for each in proportional if each.first in in_block]
    in_block |= {j for each in proportional for j in each.columns}
    in_block |= {j for j, (rows, _) in of_column.items() if not len(rows)}
    in_table = {j for table in tables for j in table.columns.tolist()}
    n_dense = x.shape[1] - len(in_block) - len(in_table)
    cost = n_dense + fewest * (len(blocks) + len(tables))
    if not (blocks or tables) or cost > MAX_COST_SHARE * x.shape[1]:
        return None
    nonzero = {j: float(baselines[j]) for j in sorted(in_block) if baselines[j]}
    for table in tables:
        nonzero |= table.baselines
    dense = [j for j in range(x.shape[1]) if j not in in_block and j not in in_table]
    return ColumnBlocks(nonzero, blocks, proportional, tables, np.array(dense, dtype=int))


def _entries(x: np.ndarray, columns: np.ndarray, baselines: np.ndarray) -> list[Entries] | None:
    """Return the differences of some columns, None if entries are not finite."""
    first, last = columns[0], columns[-1]
    is_range = last - first + 1 == len(columns)
    found = []
    for rows in _chunks(len(x), len(columns)):
        part = x[rows, first : last + 1] if is_range else x[rows][:, columns]
        row, column = np.nonzero(part != baselines)
        differences = part[row, column].astype("float64") - baselines[column]
        if not np.isfinite(differences).all():
            return None
        found.append((row + rows.start, column, differences))
    row, column, value = map(np.concatenate, zip(*found))
    order = np.argsort(column, kind="stable")
    ends = np.searchsorted(column[order], np.arange(1, len(columns)))
    by_column = zip(np.split(row[order], ends), np.split(value[order], ends))
    return [Entries(*of_column) for of_column in by_column]


def _chunks(n_rows: int, n_columns: int) -> Iterator[slice]:
    step = max(1, CHUNK // max(1, n_columns))
    return (slice(begin, begin + step) for begin in range(0, n_rows, step))


def _proportional(of_column: dict[int, Entries]) -> list[Proportional]:
    """Return the sets of two or more columns with the same rows and proportional differences."""
    found: dict[tuple[bytes, bytes], Proportional] = {}
    for j, (rows, values) in of_column.items():
        if not len(rows):
            continue
        with np.errstate(all="ignore"):
            key = rows.tobytes(), (values / values[0]).tobytes()
        if key not in found:
            found[key] = Proportional(j, [], [])
            continue
        scale = float(values[0] / of_column[found[key].first].values[0])
        if SMALLEST_RATIO <= abs(scale) <= LARGEST_RATIO:
            found[key].columns.append(j)
            found[key].scales.append(scale)
    return [each for each in found.values() if each.columns]


def _colored(
    rows_of: Iterator[np.ndarray], columns: list[int], n_rows: int, fewest: int
) -> list[list[int]]:
    """Return groups of at least ``fewest`` disjoint columns; ``rows_of`` yields the rows of each column."""
    is_taken: list[np.ndarray] = []
    groups: list[list[int]] = []
    for column, rows in zip(columns, rows_of):
        free = (k for k in reversed(range(len(groups))) if not is_taken[k][rows].any())
        k = next(free, None)
        if k is None and len(groups) == MAX_BLOCKS:
            continue
        if k is None:
            k = len(groups)
            groups.append([])
            is_taken.append(np.zeros(n_rows, dtype=bool))
        is_taken[k][rows] = True
        groups[k].append(column)
    return [group for group in groups if len(group) >= fewest]


def _block(columns: list[int], entries: list[Entries], n_rows: int) -> Block:
    of_row, values = np.full(n_rows, -1), np.zeros(n_rows)
    for position, (rows, differences) in enumerate(entries):
        of_row[rows], values[rows] = position, differences
    scales = None
    if all(len(v) == 0 or (v == v[0]).all() for _, v in entries):
        scales = np.array([v[0] if len(v) else 0.0 for _, v in entries])
    return Block(np.array(columns), of_row, values, scales)
