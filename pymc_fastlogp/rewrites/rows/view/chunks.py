"""Work on many rows, some at a time, so that the memory for it does not grow with their number.

An index of numpy or pandas has 64 bits for each row, and grouping by it needs a few times as many; the data
themselves are often not so large.
"""

from collections.abc import Iterable, Iterator
from math import prod

import numpy as np
import pandas as pd

# Rows that are worked on at a time.
CHUNK = 250_000


def chunks_of(n: int) -> Iterator[slice]:
    """Yield slices that make up ``n`` rows, one at least."""
    return (slice(begin, min(begin + CHUNK, n)) for begin in range(0, max(n, 1), CHUNK))


def rows_in(mask: np.ndarray | None, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yield the numbers of the rows in a mask that is broadcast to a shape, or of all rows."""
    flat = None if mask is None else np.broadcast_to(mask, shape).reshape(-1)
    for rows in chunks_of(prod(shape)):
        chunk = np.arange(rows.start, rows.stop)
        yield chunk if flat is None else chunk[flat[rows]]


def at_rows(array: np.ndarray, rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return what is at some rows of an array, of which the first axes are broadcast to a shape."""
    at = np.unravel_index(rows, shape)
    return array[tuple(i if n > 1 else 0 * i for i, n in zip(at, array.shape))]


def look_up(table: np.ndarray, of_row: np.ndarray) -> np.ndarray:
    """Return ``table[of_row]``; numpy would make 64-bit integers of the whole index first."""
    found = np.empty(len(of_row), dtype=table.dtype)
    for rows in chunks_of(len(of_row)):
        found[rows] = table[of_row[rows]]
    return found


def first_rows(of_row: np.ndarray, n_cells: int, chunks: Iterable[np.ndarray]) -> np.ndarray:
    """Return the first row of each cell, -1 for those without one.

    Parameters
    ----------
    of_row : numpy.ndarray of int
        The cell of each row, shape ``(n_rows,)``.
    n_cells : int
        How many there are.
    chunks : iterable of numpy.ndarray
        The numbers of the rows that count.
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
    """Return how many of some rows each cell has, shape ``(n_cells,)``."""
    counts = np.zeros(n_cells, dtype="int64")
    for rows in chunks:
        cells, of_chunk = np.unique(of_row[rows], return_counts=True)
        counts[cells] += of_chunk
    return counts


def rows_by_cell(
    of_row: np.ndarray, counts: np.ndarray, chunks: Iterable[np.ndarray]
) -> np.ndarray:
    """Return the numbers of some rows, those of a cell together and in order."""
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
    """Return the smallest dtype that holds the numbers below ``n``: most data have few cells."""
    return np.min_scalar_type(max(n - 1, 0))
