"""Process many rows in chunks, so that temporary memory does not grow with the number of rows.

A 64-bit index of numpy or pandas, and grouping by it, may need several times the memory of the data.
"""

from collections.abc import Iterable, Iterator
from math import prod

import numpy as np
import pandas as pd

# Rows per chunk.
CHUNK = 250_000


def chunks_of(n: int) -> Iterator[slice]:
    """Yield slices that cover ``n`` rows, at least one slice."""
    return (slice(begin, min(begin + CHUNK, n)) for begin in range(0, max(n, 1), CHUNK))


def rows_in(mask: np.ndarray | None, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yield the numbers of the rows in a mask that broadcasts to ``shape``, or of all rows."""
    flat = None if mask is None else np.broadcast_to(mask, shape).reshape(-1)
    for rows in chunks_of(prod(shape)):
        chunk = np.arange(rows.start, rows.stop)
        yield chunk if flat is None else chunk[flat[rows]]


def at_rows(array: np.ndarray, rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the entries at some rows of an array whose first axes broadcast to ``shape``."""
    at = np.unravel_index(rows, shape)
    return array[tuple(i if n > 1 else 0 * i for i, n in zip(at, array.shape))]


def look_up(table: np.ndarray, of_row: np.ndarray) -> np.ndarray:
    """Return ``table[of_row]`` without converting the whole index to 64-bit integers."""
    found = np.empty(len(of_row), dtype=table.dtype)
    for rows in chunks_of(len(of_row)):
        found[rows] = table[of_row[rows]]
    return found


def first_rows(of_row: np.ndarray, n_cells: int, chunks: Iterable[np.ndarray]) -> np.ndarray:
    """Return the first row of each cell, -1 for a cell without rows.

    Parameters
    ----------
    of_row : numpy.ndarray of int
        The cell of each row, shape ``(n_rows,)``.
    n_cells : int
        Number of cells.
    chunks : iterable of numpy.ndarray
        Numbers of the rows that count.
    """
    first = np.full(n_cells, -1)
    for rows in chunks:
        cells = of_row[rows]
        is_first = ~pd.Index(cells, copy=False).duplicated()
        rows, cells = rows[is_first], cells[is_first]
        is_new = first[cells] < 0
        first[cells[is_new]] = rows[is_new]
    return first


def counts_of(of_row: np.ndarray, n_cells: int, chunks: Iterable[np.ndarray]) -> np.ndarray:
    """Return the number of the given rows in each cell, shape ``(n_cells,)``."""
    counts = np.zeros(n_cells, dtype="int64")
    for rows in chunks:
        cells, of_chunk = np.unique(of_row[rows], return_counts=True)
        counts[cells] += of_chunk
    return counts


def rows_by_cell(
    of_row: np.ndarray, counts: np.ndarray, chunks: Iterable[np.ndarray]
) -> np.ndarray:
    """Return row numbers sorted by cell, in ascending order within a cell."""
    by_cell = np.empty(counts.sum(), dtype=narrowest(len(of_row)))
    begin = np.cumsum(counts) - counts
    for rows in chunks:
        order = np.argsort(of_row[rows], kind="stable")
        cells, first, of_chunk = np.unique(
            of_row[rows[order]], return_index=True, return_counts=True
        )
        place = np.arange(len(order)) + np.repeat(begin[cells] - first, of_chunk)
        by_cell[place] = rows[order]
        begin[cells] += of_chunk
    return by_cell


def narrowest(n: int) -> np.dtype:
    """Return the smallest dtype that holds the numbers below ``n``."""
    return np.min_scalar_type(max(n - 1, 0))
