"""Sources of rows: files, which DuckDB reads, and frames of supported engines, all as narwhals frames."""

import glob
import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pymc_fastlogp._upstream.duckdb import connection_of
from pymc_fastlogp.tables.batches import (
    batches_of,
    can_thin,
    frames_of,
    frames_of_duckdb,
    interruptible,
    is_lazy,
    random_partitions,
    thinned,
)

INSTALL = "pip install narwhals duckdb pyarrow"
# Engines for which each expression of this package is tested, by narwhals' names.
ENGINES = {
    "duckdb": "DuckDB",
    "polars": "Polars",
    "pandas": "pandas",
    "pyarrow": "PyArrow",
    "dask": "Dask",
    "pyspark": "Spark",
    "pyspark[connect]": "Spark",
    "ibis": "ibis",
}
PARQUET = "read_parquet"
READERS = {
    ".parquet": PARQUET,
    ".pq": PARQUET,
    ".csv": "read_csv",
    ".tsv": "read_csv",
}
COMPRESSED = {".gz", ".zst"}
# Columns by which DuckDB finds rows of a Parquet file without reading others.
PLACE = {"filename", "file_row_number"}
# Blocks of rows that are read of large Parquet files.
N_BLOCKS = 32
# Rows that an engine evaluates for a sample, at most: DuckDB and Polars take a few seconds for a query without joins.
N_PASS = 50_000_000


class Extent(NamedTuple):
    """Rows that a sample is drawn from.

    Attributes
    ----------
    n_rows : int, optional
        Number of rows of the source, if known.
    n_first : int, optional
        The sample is drawn from so many first rows; None if it is drawn from all parts of the source.
    """

    n_rows: int | None = None
    n_first: int | None = None


@dataclass(frozen=True)
class Source:
    """Rows in an engine.

    Attributes
    ----------
    frame : narwhals.DataFrame or narwhals.LazyFrame
        The rows.
    engine : str
        Name of the engine.
    pattern : str
        Path or glob of files; empty for a frame.
    files : tuple of (str, int, int)
        Path, size in bytes and time of change of each local file.
    connection : duckdb.DuckDBPyConnection, optional
        Connection of DuckDB, if known.
    key : str, optional
        Name of the rows, by which a later process finds what was read of them.
    """

    frame: Any
    engine: str
    pattern: str = ""
    files: tuple[tuple[str, int, int], ...] = ()
    connection: Any = None
    key: str | None = None

    @property
    def n_rows(self) -> int | None:
        """Number of rows of a frame in memory; None if the engine has to count."""
        return None if is_lazy(self.frame) else len(self.frame)

    def check_unchanged(self, known: Iterable[tuple[str, int, int]] = ()) -> None:
        """Raise ValueError if files were added, removed or changed, except that ``known`` files were added."""
        changed = self._changed_file(known)
        if changed is not None:
            raise ValueError(changed)

    def _changed_file(self, known: Iterable[tuple[str, int, int]] = ()) -> str | None:
        """Return a sentence about a file that was added, removed or changed, None if there is none."""
        if not self.files:
            return None
        now = state_of_files(self.pattern)
        changed = {path for path, *_ in ({*now} ^ {*self.files}) - {*known}}
        if not changed:
            return None
        path = min(changed)
        what = "has changed" if path in {path for path, *_ in now} else "has been removed"
        return f"{path} {what} since table() read it: call table() and build the model again."

    @property
    def is_parquet(self) -> bool:
        """True if the rows are those of local Parquet files."""
        return bool(self.files) and reader_of(self.pattern) == PARQUET

    def rows_of_files(self) -> list[int]:
        """Return the number of rows of each file, from the metadata of local Parquet files; an empty list for other sources."""
        if not self.is_parquet:
            return []
        paths = [path for path, *_ in self.files]
        query = "SELECT file_name, num_rows FROM parquet_file_metadata(?)"
        counts = dict(self.connection.execute(query, [paths]).fetchall())
        return [counts[path] for path in paths]

    def percent(self) -> float:
        """Return the progress of the query that runs, in percent; negative if the engine does not tell."""
        return -1.0 if self.connection is None else self.connection.query_progress()

    def collect(self, frame: Any) -> Any:
        """Return the rows of a frame of this source in memory, as a narwhals DataFrame."""
        if not is_lazy(frame):
            return frame
        with self._errors(frame):
            return interruptible(frame.collect, self.connection)

    def count(self, frame: Any) -> int:
        """Return the number of rows of a frame of this source."""
        import narwhals.stable.v2 as nw

        return int(self.collect(frame.select(nw.len().alias("n")))["n"][0])

    def batches(self, columns: Sequence[str]) -> Generator[Any]:
        """Yield all rows as narwhals DataFrames of at most :data:`~pymc_fastlogp.tables.batches.BATCH` rows, in any order."""
        frame = self.frame.select(columns)
        with self._errors(frame):
            yield from batches_of(frames_of(frame, self.connection))

    def extent(self, most: int) -> Extent:
        """Return the rows that :meth:`spread_batches` of ``most`` rows are drawn from.

        An engine that neither has its rows in memory nor knows their places counts the first :data:`N_PASS` rows.
        """
        if not is_lazy(self.frame):
            return Extent(len(self.frame))
        if self._has_partitions:
            return Extent()
        if self._blocks_of_files(most):
            return Extent(sum(self.rows_of_files()))
        n_pass = N_PASS if can_thin(self.frame) else most
        n = self.count(self.frame.head(n_pass))
        return Extent(n) if n < n_pass else Extent(n_first=n_pass)

    def spread_batches(self, columns: Sequence[str], extent: Extent, most: int) -> Generator[Any]:
        """Yield about ``most`` rows of an extent, or all if there are fewer, as :meth:`batches`. Equal sources yield equal rows.

        - A frame in memory, and Polars, take every k-th row.
        - Dask reads random partitions.
        - DuckDB reads blocks of Parquet files, and random blocks of other rows, for which it evaluates all rows of the extent.
        - Other engines read the first rows.
        """
        frame = self.frame.select(columns)
        with self._errors(frame):
            yield from batches_of(self._spread_frames(frame, extent, most))

    def _spread_frames(self, frame: Any, extent: Extent, most: int) -> Iterator[Any]:
        if not is_lazy(frame):
            yield frame.gather_every(-(-len(frame) // most) or 1).to_native()
        elif self._has_partitions:
            yield from random_partitions(frame.to_native(), most)
        elif places := self._blocks_of_files(most):
            rows = self.frame.to_native()
            for place in places:
                block = rows.filter(place).select(*(f'"{x}"' for x in frame.columns))
                yield from frames_of_duckdb(block, self.connection)
        else:
            rows = frame if extent.n_first is None else frame.head(extent.n_first)
            n_rows = extent.n_first or extent.n_rows or 0
            if n_rows > most:
                rows = thinned(rows, most / n_rows)
            yield from frames_of(rows, self.connection)

    @property
    def _has_partitions(self) -> bool:
        return str(self.frame.implementation) == "dask"

    def _blocks_of_files(self, most: int) -> list[str]:
        """Return a condition for each Parquet file, for evenly spaced blocks of ``most`` rows in all; none for other sources, and for files with fewer rows.

        DuckDB scans the row numbers of a file in each query, so one query reads all blocks of a file.
        """
        counts = self.rows_of_files()
        ends = np.cumsum(counts)
        if not counts or PLACE & {*self.frame.columns} or ends[-1] <= most:
            return []
        size = most // N_BLOCKS
        starts = np.linspace(0, ends[-1] - size, N_BLOCKS, dtype=np.int64)
        conditions = []
        for (path, *_), begin, end in zip(self.files, ends - counts, ends):
            blocks = [
                f"file_row_number >= {max(start - begin, 0)} AND file_row_number < {start + size - begin}"
                for start in starts[(starts < end) & (begin < starts + size)]
            ]
            if blocks:
                conditions.append(
                    f"filename = '{path.replace("'", "''")}' AND ({' OR '.join(blocks)})"
                )
        return conditions

    @contextmanager
    def queries(self) -> Iterator[None]:
        """Name engine and files in errors of an engine that refuses a query. Errors of this package are ValueError or RuntimeError."""
        try:
            yield
        except (MemoryError, RuntimeError, ValueError):
            raise
        except Exception as error:
            raise RuntimeError(self._failure(error, [])) from error

    @contextmanager
    def _errors(self, frame: Any) -> Iterator[None]:
        """Name engine, columns and files in errors of the engine; raise KeyboardInterrupt if DuckDB was interrupted."""
        try:
            yield
        except (MemoryError, GeneratorExit):
            raise
        except Exception as error:
            if _is_interrupt(error):
                raise KeyboardInterrupt from error
            raise RuntimeError(self._failure(error, _names(frame))) from error

    def _failure(self, error: Exception, names: Iterable[str]) -> str:
        """Return a sentence about an engine that raised, with columns, files and what to do."""
        changed = self._changed_file()
        if changed is not None:
            return changed
        first, *_ = str(error).splitlines() or [type(error).__name__]
        own = _names(self.frame)
        columns = ", ".join(x for x in names if x in own)
        of_columns = f"the columns {columns} of " if columns else ""
        place = self.pattern or "the table"
        advice = (
            "look at the files, or write them again"
            if self.pattern
            else "look at the frame's query"
        )
        return f"{self.engine} could not read {of_columns}{place}: {first.rstrip('.')}; {advice}, then call table() again."


def _names(frame: Any) -> list[str]:
    """Return the names of the columns of a frame, as far as its engine knows them."""
    try:
        return frame.collect_schema().names()
    except Exception:  # of an engine that has raised before
        return []


def _is_interrupt(error: Exception) -> bool:
    """Return whether DuckDB raised because of Ctrl-C."""
    return "interrupt" in str(error).lower() and (
        type(error) is RuntimeError or type(error).__name__ == "InterruptException"
    )


def source_of(rows: Any, key: str | None = None) -> Source:
    """Return the source of files or of a frame, with the key of its rows.

    Raises
    ------
    ImportError
        If narwhals or DuckDB is not installed.
    FileNotFoundError
        If no file matches the path.
    ValueError
        If the format of the files is unknown.
    TypeError
        If the engine of the frame is not supported.
    """
    try:
        import narwhals.stable.v2 as nw
    except ImportError as error:
        raise ImportError(f"table() needs narwhals: {INSTALL}") from error
    if isinstance(rows, str | os.PathLike):
        return source_of_files(os.fspath(rows), key)
    try:
        frame = nw.from_native(rows)
    except TypeError:
        frame = None
    engine = None if frame is None else ENGINES.get(str(frame.implementation))
    if engine is None:
        if hasattr(frame, "implementation"):
            raise TypeError(
                f"table() does not read {frame.implementation} frames: write the frame to Parquet files, and give their path."
            )
        raise TypeError(
            f"table() does not read {type(rows).__module__}.{type(rows).__qualname__}: give a path of Parquet or CSV files, or a frame of"
            f" {', '.join(dict.fromkeys(ENGINES.values()))}."
        )
    connection = connection_of(frame.to_native()) if engine == ENGINES["duckdb"] else None
    return Source(frame, engine, connection=connection, key=key)


def source_of_files(
    pattern: str, key: str | None = None, files: tuple[tuple[str, int, int], ...] = ()
) -> Source:
    """Return the source of files, by default of all that match the pattern; raise as :func:`source_of`."""
    import narwhals.stable.v2 as nw

    try:
        import duckdb
    except ImportError as error:
        raise ImportError(f"table() reads files with DuckDB: {INSTALL}") from error
    reader = reader_of(pattern)
    if reader is None:
        raise ValueError(
            f"table() reads files with the endings {', '.join(READERS)}, not {pattern}: give a glob such as 'folder/*.parquet'."
        )
    if not files and "://" not in pattern:
        files = state_of_files(pattern)
    if not files and "://" not in pattern:
        raise FileNotFoundError(f"no file matches {pattern}")
    # A connection of its own, since settings and transactions of DuckDB's default connection belong to the user.
    connection = duckdb.connect()
    try:
        # Files that are added later are not read.
        relation = getattr(connection, reader)([path for path, *_ in files] or pattern)
    except duckdb.Error as error:
        first, *_ = str(error).splitlines()
        raise RuntimeError(
            f"DuckDB could not read {pattern}: {first.rstrip('.')}; look at the files, or write them again."
        ) from error
    with suppress(duckdb.Error):  # in Jupyter DuckDB refuses without ipywidgets
        connection.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")
    return Source(nw.from_native(relation), ENGINES["duckdb"], pattern, files, connection, key)


def reader_of(pattern: str) -> str | None:
    """Return the name of DuckDB's function that reads files of a pattern, None if their format is unknown."""
    suffixes = Path(pattern).suffixes
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes = suffixes[:-1]
    return READERS.get(suffixes[-1].lower()) if suffixes else None


def state_of_files(pattern: str) -> tuple[tuple[str, int, int], ...]:
    """Return path, size in bytes and time of change of each file that matches a pattern, sorted by path."""
    found = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern, recursive=True))
    paths = map(os.path.abspath, found)
    states = []
    for path in paths:
        with suppress(FileNotFoundError):  # removed in the meantime
            state = os.stat(path)
            states.append((path, state.st_size, state.st_mtime_ns))
    return tuple(states)
