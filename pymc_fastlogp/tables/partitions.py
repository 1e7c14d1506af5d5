"""Partitions of a source for other processes: consecutive rows, or partitions of Dask.

The bounds of partitions depend on the rows alone, not on the processes that read them.
"""

import os
import platform
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from pymc_fastlogp._upstream.duckdb import in_memory
from pymc_fastlogp.tables.batches import is_lazy
from pymc_fastlogp.tables.source import Source, source_of_files

# A worker takes seconds to read and to compile so many rows, and milliseconds to evaluate them.
MOST_ROWS = 1_000_000
# Partitions of a small source: 1, 2, 3, 4, 6 and 12 workers get equally many.
FEWEST_PARTITIONS = 12


class FilePartition(NamedTuple):
    """Consecutive rows of files that all processes see.

    Attributes
    ----------
    pattern : str
        Path or glob of all files of the source.
    files : tuple of (str, int, int)
        Path, size in bytes and time of change of the files that have the rows; empty for an address.
    names : tuple of str
        Names of the columns.
    begin, n_rows : int
        The first row, and the number of rows.
    """

    pattern: str
    files: tuple[tuple[str, int, int], ...]
    names: tuple[str, ...]
    begin: int
    n_rows: int

    def load(self) -> Any:
        """Return the rows in memory.

        Raises
        ------
        FileNotFoundError
            If this process does not see the files.
        """
        for path, size, _ in self.files:
            if not os.path.exists(path) or os.path.getsize(path) != size:
                raise FileNotFoundError(
                    f"{path} is missing or differs on {platform.node()}: give a path that all workers see."
                )
        source = source_of_files(self.pattern, files=self.files)
        rows = source.frame.select(self.names).to_native().limit(self.n_rows, self.begin)
        with source.queries():
            return in_memory(rows)


class FramePartition(NamedTuple):
    """Consecutive rows of a frame of this process, which may be lazy."""

    source: Source
    frame: Any

    def load(self) -> Any:
        """Return the rows in memory."""
        return self.source.collect(self.frame).to_native()


def partitions_of(source: Source, names: Sequence[str], n_rows: int) -> list[Any]:
    """Return all rows of some columns: :class:`FilePartition`, :class:`FramePartition`, or Dask frames of one partition."""
    import narwhals.stable.v2 as nw

    if source.pattern:
        return [*_of_files(source, tuple(names), n_rows)]
    frame = source.frame.select(names)
    native = frame.to_native()
    match str(frame.implementation), is_lazy(frame):
        case "dask", _:
            return [native.partitions[k] for k in range(native.npartitions)]
        case "duckdb", _:
            frames = [nw.from_native(native.limit(n, begin)) for begin, n in _bounds(n_rows)]
        case "polars", True:
            frames = [nw.from_native(native.slice(begin, n)) for begin, n in _bounds(n_rows)]
        case _:
            frames = [frame[begin : begin + n] for begin, n in _bounds(n_rows)]
    return [FramePartition(source, x) for x in frames]


def _of_files(source: Source, names: tuple[str, ...], n_rows: int) -> Iterator[FilePartition]:
    """Yield partitions that name the files in which their rows are, as far as the engine knows without reading them."""
    counts = source.rows_of_files() or [n_rows]
    ends = [*accumulate(counts)]
    for begin, n in _bounds(n_rows):
        inside = [k for k, end in enumerate(ends) if end > begin and end - counts[k] < begin + n]
        first = ends[inside[0]] - counts[inside[0]]
        files = source.files if len(ends) == 1 else tuple(source.files[k] for k in inside)
        yield FilePartition(source.pattern, files, names, begin - first, n)


def _bounds(n_rows: int) -> list[tuple[int, int]]:
    """Return the first row and the number of rows of each partition."""
    size = min(MOST_ROWS, -(-n_rows // FEWEST_PARTITIONS))
    return [(begin, min(size, n_rows - begin)) for begin in range(0, n_rows, size)]
