"""Rows of an engine as frames in memory, a batch at a time."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from math import ceil
from typing import Any

import numpy as np

# Most rows of a batch: few merges, and arrays that stay in the cache of the processor.
BATCH = 500_000


def is_lazy(frame: Any) -> bool:
    """Return whether a narwhals frame has its rows in an engine, not in memory."""
    return hasattr(frame, "collect")


def batches_of(frames: Iterable[Any]) -> Iterator[Any]:
    """Yield frames in memory as narwhals DataFrames of at most :data:`BATCH` rows."""
    import narwhals.stable.v2 as nw

    for frame in frames:
        rows = nw.from_native(frame, eager_only=True)
        for begin in range(0, len(rows), BATCH):
            yield rows[begin : begin + BATCH]


def frames_of(frame: Any, connection: Any) -> Iterator[Any]:
    """Yield the rows of a narwhals frame as frames in memory, one at a time.

    Parameters
    ----------
    frame : narwhals.DataFrame or narwhals.LazyFrame
        The rows.
    connection : duckdb.DuckDBPyConnection, optional
        Connection of DuckDB, if known.
    """
    native = frame.to_native()
    match str(frame.implementation), is_lazy(frame):
        case "duckdb", _:
            yield from frames_of_duckdb(native, connection)
        case "polars", True:
            yield from native.collect_batches(chunk_size=BATCH)
        case "dask", _:
            for partition in native.partitions:
                yield partition.compute()
        case "pyspark" | "pyspark[connect]", _:
            yield from _frames_of_spark(native)
        case "ibis", _:
            yield from _frames_of_ibis(native)
        case _:
            yield native


def frames_of_duckdb(relation: Any, connection: Any) -> Iterator[Any]:
    """Yield the rows of a relation as PyArrow tables."""
    import pyarrow

    with interruptible(lambda: relation.to_arrow_reader(BATCH), connection) as reader:
        while (batch := interruptible(partial(next, reader, None), connection)) is not None:
            yield pyarrow.Table.from_batches([batch])


def can_thin(frame: Any) -> bool:
    """Return whether :func:`thinned` takes rows of a lazy narwhals frame."""
    match str(frame.implementation):
        case "duckdb" | "polars":
            return True
        case "ibis":
            return bool(frame.to_native().get_backend().name == "duckdb")
    return False


def thinned(frame: Any, share: float) -> Any:
    """Return a share of the rows of a lazy narwhals frame, from all of its parts, by one pass of the engine. Equal frames have equal rows.

    DuckDB takes random blocks. With a seed one thread takes these, so the rows do not depend on the number of threads.
    """
    import narwhals.stable.v2 as nw

    native = frame.to_native()
    match str(frame.implementation):
        case "duckdb":
            view = "pymc_fastlogp_rows"
            sample = f"USING SAMPLE {100 * share:.9f} PERCENT (system, 0)"
            rows = native.query(view, f"FROM {view} {sample}")
        case "polars":
            rows = native.gather_every(ceil(1 / share))
        case _:
            rows = native.sample(share, method="block", seed=0)
    return nw.from_native(rows)


def random_partitions(frame: Any, most: int) -> Iterator[Any]:
    """Yield partitions of a Dask frame in random order, the last one cut, until there are ``most`` rows."""
    for k in np.random.default_rng(0).permutation(frame.npartitions):
        rows = frame.partitions[int(k)].compute().head(most)
        yield rows
        most -= len(rows)
        if not most:
            return


def interruptible[T](query: Callable[[], T], connection: Any) -> T:
    """Run a query of DuckDB, so that Ctrl-C ends it: DuckDB does not look for signals while only its own threads work."""
    if connection is None:
        return query()
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(query)
        try:
            return result.result()
        except KeyboardInterrupt:
            while not result.done():  # the query may not have started
                connection.interrupt()
                wait([result], timeout=0.1)
            raise


def _frames_of_ibis(table: Any) -> Iterator[Any]:
    """Yield the rows of an ibis table as PyArrow tables."""
    import pyarrow

    backend = table.get_backend()
    if backend.name == "duckdb":
        # Batches of ibis 12 need a method that DuckDB 2 has no more.
        table.limit(0).to_pyarrow()  # registers tables in memory
        yield from frames_of_duckdb(backend.con.sql(backend.compile(table)), backend.con)
        return
    for batch in table.to_pyarrow_batches(chunk_size=BATCH):
        yield pyarrow.Table.from_batches([batch])


def _frames_of_spark(frame: Any) -> Iterator[Any]:
    """Yield the rows of a Spark frame, a partition at a time, which workers encode as Arrow."""
    import pyarrow

    def encoded(batches: Iterator[Any]) -> Iterator[Any]:
        # A nested function is pickled by value, so that workers need PyArrow alone.
        from itertools import batched

        import pyarrow

        for some in batched(batches, 50):
            sink = pyarrow.BufferOutputStream()
            with pyarrow.ipc.new_stream(sink, some[0].schema) as stream:
                for batch in some:
                    stream.write_batch(batch)
            yield pyarrow.RecordBatch.from_pydict({"rows": [sink.getvalue().to_pybytes()]})

    for row in frame.mapInArrow(encoded, "rows binary").toLocalIterator():
        yield pyarrow.ipc.open_stream(row["rows"]).read_all()
