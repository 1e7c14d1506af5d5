"""Sources of rows: files, which DuckDB reads, and frames of supported engines, all as narwhals frames."""

import glob
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INSTALL = "pip install narwhals duckdb pyarrow"
# Engines for which each expression of this package is tested, by narwhals' names.
ENGINES = {
    "duckdb": "DuckDB",
    "polars": "Polars",
    "pandas": "pandas",
    "pyarrow": "PyArrow",
    "dask": "Dask",
}
READERS = {
    ".parquet": "read_parquet",
    ".pq": "read_parquet",
    ".csv": "read_csv",
    ".tsv": "read_csv",
}
COMPRESSED = {".gz", ".zst"}
# Most rows of a batch: few merges, and arrays that stay in the cache of the processor.
BATCH = 500_000


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
    files : dict of str to tuple of int
        Size and time of change of each local file.
    """

    frame: Any
    engine: str
    pattern: str = ""
    files: tuple[tuple[str, int, int], ...] = ()

    def check_unchanged(self) -> None:
        """Raise ValueError if files were added, removed or changed."""
        if not self.files:
            return
        now = state_of_files(self.pattern)
        if now != self.files:
            changed = {path for path, *_ in {*now} ^ {*self.files}}
            raise ValueError(
                f"{min(changed)} has changed since table() read it: call table() and build the model again."
            )

    def collect(self, frame: Any) -> Any:
        """Return the rows of a frame of this source in memory, as a narwhals DataFrame."""
        if not hasattr(frame, "collect"):
            return frame
        with self._errors():
            return frame.collect()

    def batches(self, columns: Sequence[str]) -> Generator[Any]:
        """Yield all rows as narwhals DataFrames of at most :data:`BATCH` rows, in any order."""
        import narwhals.stable.v2 as nw

        with self._errors():
            for part in _parts(self.frame.select(columns)):
                rows = nw.from_native(part, eager_only=True)
                for begin in range(0, len(rows), BATCH):
                    yield rows[begin : begin + BATCH]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Name the engine in errors of the engine."""
        try:
            yield
        except (MemoryError, GeneratorExit):
            raise
        except Exception as error:
            first, *_ = str(error).splitlines() or [type(error).__name__]
            raise RuntimeError(f"{self.engine} could not read the table: {first}") from error


def _parts(frame: Any) -> Iterator[Any]:
    """Yield the rows of a narwhals frame as frames in memory, one at a time."""
    native = frame.to_native()
    match str(frame.implementation), hasattr(frame, "collect"):
        case "duckdb", _:
            import pyarrow

            with native.to_arrow_reader(BATCH) as reader:
                for batch in reader:
                    yield pyarrow.Table.from_batches([batch])
        case "polars", True:
            yield from native.collect_batches(chunk_size=BATCH)
        case "dask", _:
            for part in native.partitions:
                yield part.compute()
        case _:
            yield native


def source_of(rows: Any) -> Source:
    """Return the source of files or of a frame.

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
        return _source_of_files(os.fspath(rows))
    try:
        frame = nw.from_native(rows)
    except TypeError:
        frame = None
    engine = None if frame is None else ENGINES.get(str(frame.implementation))
    if engine is None:
        raise TypeError(
            f"table() does not read {type(rows).__module__}.{type(rows).__qualname__}: give a path of Parquet or CSV files, or a frame of"
            f" {', '.join(ENGINES.values())}."
        )
    return Source(frame, engine)


def _source_of_files(pattern: str) -> Source:
    import narwhals.stable.v2 as nw

    try:
        import duckdb
    except ImportError as error:
        raise ImportError(f"table() reads files with DuckDB: {INSTALL}") from error
    suffixes = Path(pattern).suffixes
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes = suffixes[:-1]
    reader = READERS.get(suffixes[-1].lower()) if suffixes else None
    if reader is None:
        raise ValueError(
            f"table() reads files with the endings {', '.join(READERS)}, not {pattern}: give a glob such as 'folder/*.parquet'."
        )
    files = () if "://" in pattern else state_of_files(pattern)
    if not files and "://" not in pattern:
        raise FileNotFoundError(f"no file matches {pattern}")
    # A connection of its own, since settings and transactions of DuckDB's default connection belong to the user.
    connection = duckdb.connect()
    try:
        relation = getattr(connection, reader)(pattern)
    except duckdb.Error as error:
        first, *_ = str(error).splitlines()
        raise RuntimeError(f"DuckDB could not read {pattern}: {first}") from error
    return Source(nw.from_native(relation), ENGINES["duckdb"], pattern, files)


def state_of_files(pattern: str) -> tuple[tuple[str, int, int], ...]:
    """Return path, size in bytes and time of change of each file that matches a pattern, sorted by path."""
    paths = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern, recursive=True))
    states = ((path, os.stat(path)) for path in paths)
    return tuple((path, x.st_size, x.st_mtime_ns) for path, x in states)
