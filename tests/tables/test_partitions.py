"""Partitions of a table: all rows, in order, whatever the engine."""

import pickle

import numpy as np
import pandas as pd
import pytest

import pymc_fastlogp
from pymc_fastlogp.tables import partitions
from pymc_fastlogp.tables.columns import column_of
from pymc_fastlogp.tables.partitions import FilePartition

N = 1000
FRAME = pd.DataFrame(
    {
        "i": np.arange(N),
        "size": np.random.default_rng(0).choice(["small", "large"], N),
        "x": np.random.default_rng(1).normal(size=N),
    }
)
CODES = (FRAME["size"] == "small").to_numpy().astype(np.int64)


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch, engines):
    monkeypatch.setattr(partitions, "MOST_ROWS", 150)
    monkeypatch.setattr(partitions, "FEWEST_PARTITIONS", 1)


def duckdb_relation(folder):
    import duckdb

    connection = duckdb.connect()
    connection.register("frame", FRAME)
    connection.execute("CREATE TABLE t AS SELECT * FROM frame")
    return connection.table("t")


def parquet_files(folder):
    for k, (begin, end) in enumerate([(0, 10), (10, 500), (500, 500), (500, N)]):
        FRAME[begin:end].to_parquet(folder / f"{k}.parquet")
    return str(folder / "*.parquet")


def csv_file(folder):
    FRAME.to_csv(folder / "rows.csv", index=False)
    return str(folder / "rows.csv")


def polars_lazy(folder):
    return pytest.importorskip("polars").from_pandas(FRAME).lazy()


def polars_frame(folder):
    return pytest.importorskip("polars").from_pandas(FRAME)


def arrow_table(folder):
    return pytest.importorskip("pyarrow").Table.from_pandas(FRAME)


def pandas_frame(folder):
    return FRAME


def dask_frame(folder):
    return pytest.importorskip("dask.dataframe").from_pandas(FRAME, npartitions=3)


SOURCES = [
    duckdb_relation,
    parquet_files,
    csv_file,
    polars_lazy,
    polars_frame,
    arrow_table,
    pandas_frame,
    dask_frame,
]


def loaded(partition):
    return partition.load() if hasattr(partition, "load") else partition.compute()


def read(table):
    """Return the values of the columns in all partitions, read as another process reads them."""
    columns = [column_of(table[name]) for name in ("i", "size", "x")]
    reader = pickle.loads(pickle.dumps(table.reader(columns)))
    values = [reader.values(loaded(partition)) for partition in table.partitions(columns)]
    return [np.concatenate(x) for x in zip(*values)]


@pytest.mark.parametrize("source", SOURCES)
def test_partitions_have_all_rows_in_order(source, tmp_path):
    i, size, x = read(pymc_fastlogp.table(source(tmp_path)))
    assert i.tolist() == FRAME["i"].tolist()
    assert size.tolist() == CODES.tolist()
    assert x.tolist() == FRAME["x"].tolist()


@pytest.mark.parametrize("source", [pandas_frame, parquet_files])
def test_partitions_have_the_rows_that_were_added(source, tmp_path):
    table = pymc_fastlogp.table(source(tmp_path))
    table.update(FRAME)
    i, *_ = read(table)
    assert i.tolist() == [*FRAME["i"], *FRAME["i"]]


def test_partitions_of_files_name_the_files_that_have_their_rows(tmp_path):
    table = pymc_fastlogp.table(parquet_files(tmp_path))
    found = table.partitions([column_of(table["x"])])
    assert [[path[-9] for path, *_ in x.files] for x in found] == [
        ["0", "1"],
        ["1"],
        ["1"],
        ["1", "2", "3"],
        *[["3"]] * 3,
    ]


def test_bounds_depend_on_the_number_of_rows_alone(monkeypatch):
    monkeypatch.setattr(partitions, "MOST_ROWS", 100)
    monkeypatch.setattr(partitions, "FEWEST_PARTITIONS", 12)
    assert partitions._bounds(24) == [(2 * k, 2) for k in range(12)]
    assert partitions._bounds(2500)[-1] == (2400, 100)
    assert partitions._bounds(5) == [(k, 1) for k in range(5)]


def test_a_file_that_a_process_does_not_see_is_named(tmp_path):
    partition = FilePartition("*.parquet", ((str(tmp_path / "a.parquet"), 1, 0),), ("x",), 0, 1)
    with pytest.raises(FileNotFoundError, match=r"a\.parquet is missing or differs on"):
        partition.load()
