"""The sample that decides how rows are read: the order of the table does not matter."""

from itertools import pairwise

import numpy as np
import pymc as pm
import pytest

import pymc_fastlogp
from pymc_fastlogp.tables.batches import frames_of_duckdb
from pymc_fastlogp.tables.columns import column_of
from pymc_fastlogp.tables.expressions import expression_of_column
from pymc_fastlogp.tables.plan import Way, expected_cells
from pymc_fastlogp.tables.sample import RandomSample
from pymc_fastlogp.tables.source import Extent, source_of
from tests.tables.conftest import SOURCES, N, QuadraticIn

pytestmark = pytest.mark.usefixtures("engines")

N_SAMPLE = 4000


def drawn(size, batches):
    """Return the places of the sample among all rows."""
    sample = RandomSample(size)
    starts = np.cumsum([0, *batches[:-1]])
    candidates = [start + sample.candidates(n) for start, n in zip(starts, batches, strict=True)]
    assert sample.n_seen == sum(batches)
    return np.concatenate(candidates)[sample.places()]


@pytest.mark.parametrize("batches", [[1000], [400, 600], [7] * 142 + [6]])
def test_a_sample_does_not_depend_on_batches(batches):
    np.testing.assert_array_equal(drawn(50, batches), drawn(50, [1000]))
    assert len(np.unique(drawn(50, batches))) == 50
    np.testing.assert_array_equal(drawn(1000, batches), np.arange(1000))


def test_each_row_is_equally_likely():
    places = drawn(20_000, [30_000] * 10)
    counts, _ = np.histogram(places, 20, (0, 300_000))
    # Four standard deviations.
    assert (abs(counts - 1000) < 4 * np.sqrt(1000)).all()


def test_few_rows_are_candidates():
    sample = RandomSample(1000)
    n = sum(len(sample.candidates(10_000)) for _ in range(100))
    assert 1000 <= n < 1000 * (2 + np.log(1000))


@pytest.mark.parametrize(
    ("rows", "n_cells"),
    [
        (np.arange(1_000_000) % 40, 40),
        (np.arange(1_000_000) % 30_000, 30_000),
        (np.arange(1_000_000), 1_000_000),
        # Half of the rows are one cell.
        (np.maximum(np.arange(1_000_000), 500_000), 500_000),
    ],
)
def test_the_number_of_cells_is_estimated(rows, n_cells):
    sample = rows[drawn(20_000, [len(rows)])]
    _, counts = np.unique(sample, return_counts=True)
    assert expected_cells(counts, len(rows)) == pytest.approx(n_cells, rel=0.05)


@pytest.fixture
def sorted_source(source_name, relation, tmp_path):
    """Rows of which the first quarter has one value of ``y``, sorted by it, in each engine."""
    rows = relation.select(
        "*, CASE WHEN noise < 0.25 THEN 0 ELSE noise END AS y, CAST(100 * noise AS INTEGER) AS age"
    ).order("y, age")
    for name, part in (("a", "y = 0"), ("b", "y > 0")):
        rows.filter(part).order("y, age").write_parquet(
            str(tmp_path / f"{name}.parquet"), row_group_size=2048
        )
    rows.write_csv(str(tmp_path / "rides.csv"))
    return SOURCES[source_name](rows, tmp_path)


def sample_of(table, *names):
    """Return the values of the sample."""
    columns = (*(column_of(table[name]) for name in names),)
    return {x.name: values for x, values in table._sample(columns).items()}


@pytest.mark.parametrize("source_name", SOURCES)
def test_a_sorted_table_is_read_as_any_other(source_name, sorted_source, monkeypatch):
    for module in ("sample", "plan"):
        monkeypatch.setattr(f"pymc_fastlogp.tables.{module}.N_SAMPLE", N_SAMPLE)
    table = pymc_fastlogp.table(sorted_source)
    read = [expression_of_column(column_of(table[x]), "float64") for x in ("night", "y")]
    assert table.plan(read, QuadraticIn("y")).way is Way.FACTORED
    assert table.plan(read, QuadraticIn()).way is Way.LOADED
    sample = sample_of(table, "y", "age")
    assert len(sample["y"]) == N_SAMPLE
    assert len(np.unique(sample["age"])) == 101
    assert (sample["y"] == 0).mean() == pytest.approx(0.25, abs=2 / np.sqrt(N_SAMPLE))
    again = sample_of(pymc_fastlogp.table(sorted_source), "y", "age")
    for name, values in sample.items():
        np.testing.assert_array_equal(again[name], values)


@pytest.mark.parametrize("source_name", [x for x in SOURCES if x != "spark"])
def test_few_rows_of_a_large_sorted_table_are_from_all_parts(
    source_name, sorted_source, monkeypatch
):
    if source_name == "dask":
        sorted_source = sorted_source.repartition(npartitions=24)
    monkeypatch.setattr("pymc_fastlogp.tables.sample.N_SCANNED", 20_000)
    table = pymc_fastlogp.table(sorted_source)
    sample = sample_of(table, "y", "age")
    if source_name in ("parquet", "pandas", "polars", "pyarrow", "dask"):
        assert len(sample["y"]) == 20_000
    else:  # random blocks of 2048 rows, or every k-th row for a whole k
        assert 10_000 < len(sample["y"]) < 40_000
    assert 0.1 < (sample["y"] == 0).mean() < 0.5
    assert np.ptp(sample["age"]) > 60
    assert table._n_first is None
    if source_name != "dask":
        assert table._n_rows == N
    again = sample_of(pymc_fastlogp.table(sorted_source), "y", "age")
    for name, values in sample.items():
        np.testing.assert_array_equal(again[name], values)


@pytest.mark.parametrize(
    ("source_name", "n_first"), [("duckdb", 60_000), ("polars_lazy", 60_000), ("spark", 20_000)]
)
def test_explain_says_that_a_sample_is_of_the_first_rows(
    source_name, n_first, sorted_source, monkeypatch
):
    monkeypatch.setattr("pymc_fastlogp.tables.sample.N_SCANNED", 20_000)
    monkeypatch.setattr("pymc_fastlogp.tables.source.N_PASS", 60_000)
    table = pymc_fastlogp.table(sorted_source)
    with pm.Model() as model:
        pm.Poisson("age", pm.math.exp(pm.Normal("a") * table["night"]), observed=table["age"])
    assert f" of the first {n_first} rows" in str(pymc_fastlogp.explain(model))
    last = table._source.collect(table._source.frame.head(n_first))["age"].max()
    assert last / 2 < sample_of(table, "night", "age")["age"].max() <= last < 60


def test_a_sample_of_duckdb_does_not_depend_on_threads(engines, monkeypatch):
    monkeypatch.setattr("pymc_fastlogp.tables.sample.N_SCANNED", 20_000)
    samples = []
    for threads in (1, 4):
        connection = pytest.importorskip("duckdb").connect()
        connection.execute(f"SET threads = {threads}")
        connection.execute("CREATE TABLE t AS SELECT i FROM range(500000) r(i)")
        table = pymc_fastlogp.table(connection.sql("SELECT i FROM t WHERE i % 5 > 0"))
        samples.append(sample_of(table, "i")["i"])
    np.testing.assert_array_equal(*samples)


def test_blocks_of_files_have_each_row_once(relation, tmp_path):
    folder = tmp_path / "rides, 'old'"
    folder.mkdir()
    ends = [0, 7, 3000, 3001, 9000]
    for k, (begin, end) in enumerate(pairwise(ends)):
        rows = relation.query("t", f"SELECT i AS i FROM range({begin}, {end}) r(i)")
        rows.write_parquet(str(folder / f"{k}.parquet"), row_group_size=2048)
    source = source_of(folder / "*.parquet")
    batches = source.spread_batches(["i"], source.extent(3200), 3200)
    found = np.concatenate([x["i"].to_numpy() for x in batches])
    assert len(found) == len(np.unique(found)) == 3200
    assert found[0] == 0
    assert found[-1] == 8999
    assert np.diff(found).max() <= 9000 / 32
    batches = source.spread_batches(["i"], source.extent(9000), 9000)
    assert sum(map(len, batches)) == 9000


def test_blocks_of_a_file_are_read_by_one_query(relation, tmp_path, monkeypatch):
    """DuckDB scans the row numbers of a file in each query."""
    for k in range(3):
        relation.limit(5000).write_parquet(str(tmp_path / f"{k}.parquet"))
    queries = []

    def counted(block, connection):
        queries.append(block)
        return frames_of_duckdb(block, connection)

    monkeypatch.setattr("pymc_fastlogp.tables.source.frames_of_duckdb", counted)
    source = source_of(tmp_path / "*.parquet")
    batches = source.spread_batches(["zone"], source.extent(3200), 3200)
    assert sum(map(len, batches)) == 3200
    assert len(queries) == 3


def test_files_with_columns_of_the_names_of_places_are_read_by_random_blocks(relation, tmp_path):
    path = tmp_path / "rides.parquet"
    rows = relation.query("t", "SELECT i AS file_row_number FROM range(900000) r(i)")
    rows.write_parquet(str(path))
    source = source_of(path)
    extent = source.extent(90_000)
    assert extent == Extent(900_000)
    batches = source.spread_batches(["file_row_number"], extent, 90_000)
    found = np.concatenate([x["file_row_number"].to_numpy() for x in batches])
    assert 50_000 < len(found) < 150_000
    assert np.ptp(found) > 700_000
