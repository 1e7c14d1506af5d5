"""Columns, levels and placeholders of tables, and errors of sources and values."""

import ast
import pickle
import warnings
from copy import deepcopy

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_fastlogp
from pymc_fastlogp.models.table_rows import without_tables
from pymc_fastlogp.tables.columns import column_of
from pymc_fastlogp.tables.source import ENGINES as ENGINES_THAT_ARE_READ
from pymc_fastlogp.tables.source import source_of
from tests.conftest import REPOSITORY
from tests.tables.conftest import N, summary_of

pytestmark = pytest.mark.usefixtures("engines")


def rows_of(frame, *columns):
    """Return the distinct rows of columns of a frame."""
    return summary_of(pymc_fastlogp.table(frame), *columns)


def test_columns_and_rows_are_counted(source):
    table = pymc_fastlogp.table(source)
    assert table.columns == (
        *("zone", "size", "night", "tips", "seats", "rank", "income", "meter", "noise"),
    )
    assert f"Table in {table.engine}\n  zone: " in repr(table)
    assert table.n_rows == len(table) == N
    assert f"{N} rows" in repr(table)


def test_placeholders_hold_the_first_rows(source):
    table = pymc_fastlogp.table(source)
    zone = table["zone"]
    assert zone is table["zone"]
    assert zone.name == "table['zone']"
    assert zone.type.shape == (None,)
    assert zone.get_value().shape == (1000,)
    dtypes = {name: table[name].type.dtype for name in table.columns}
    assert dtypes == {
        **dict.fromkeys(["zone", "size", "tips", "seats", "rank"], "int64"),
        **dict.fromkeys(["income", "meter", "noise"], "float64"),
        "night": "bool",
    }


def test_levels_are_sorted_and_placeholders_hold_codes(source):
    table = pymc_fastlogp.table(source)
    assert table.levels("size") == ["huge", "large", "small"]
    assert table.levels("zone") == [*range(23)]
    assert set(table["size"].get_value()) == {0, 1, 2}
    codes = summary_of(table, "size")
    assert codes.n_cells == 3
    assert codes.counts.sum() == N


def test_codes_of_integers_are_places_among_the_levels():
    table = pymc_fastlogp.table(pd.DataFrame({"year": [2021, 2019, 2024, 2019]}))
    assert table.levels("year") == [2019, 2021, 2024]
    np.testing.assert_array_equal(table.codes("year").get_value(), [1, 0, 2, 0])
    np.testing.assert_array_equal(table["year"].get_value(), [2021, 2019, 2024, 2019])


@pytest.mark.parametrize("ordered", [False, True])
def test_categories_are_levels_that_occur(ordered):
    size = pd.Categorical(["b", "a", "b"], ["b", "unused", "a"], ordered=ordered)
    table = pymc_fastlogp.table(pd.DataFrame({"size": size}))
    assert table.levels("size") == ["a", "b"]
    np.testing.assert_array_equal(table["size"].get_value(), [1, 0, 1])


def test_numbers_keep_their_values_in_other_dtypes(relation):
    frame = relation.select(
        "CAST(seats AS UTINYINT) a, CAST(seats AS HUGEINT) b, CAST(income AS FLOAT) c, CAST(income AS DECIMAL(9, 2)) d, income, seats"
    )
    rows = rows_of(frame, "a", "b", "c", "d", "income", "seats")
    values = dict(zip("abcd", rows.columns.values(), strict=False))
    values |= dict(zip(["income", "seats"], [*rows.columns.values()][4:], strict=True))
    for name, same in {"a": "seats", "b": "seats", "c": "income", "d": "income"}.items():
        np.testing.assert_array_equal(values[name], values[same])
        assert values[name].dtype == values[same].dtype


def test_batches_have_all_rows(source, monkeypatch):
    monkeypatch.setattr("pymc_fastlogp.tables.batches.BATCH", 7000)
    batches = [*source_of(source).batches(["zone", "noise"])]
    lengths = [len(x) for x in batches]
    assert sum(lengths) == N
    assert max(lengths) <= 7000
    assert {tuple(x.columns) for x in batches} == {("zone", "noise")}
    total = sum(float(x["noise"].sum()) for x in batches)
    assert abs(total - N / 2) < 5 * np.sqrt(N / 12)


def test_an_engine_that_raises_between_batches_is_an_error():
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    frame = connection.sql(
        "SELECT CASE WHEN i < 250000 THEN i ELSE error('broken row') END AS x FROM range(300000) t(i)"
    )
    table = pymc_fastlogp.table(frame)
    with pytest.raises(
        RuntimeError, match=r"^DuckDB could not read the columns x of the table: .*broken row"
    ):
        summary_of(table, "x", quadratic=["x"])
    assert connection.sql("SELECT 1").fetchall() == [(1,)]


BAD = {
    "missing": [1.0, None, 2.0],
    "NaN": [1.0, float("nan"), 2.0],
    "infinite": [1.0, float("inf"), 2.0],
}


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("case", BAD)
def test_refuses_values_that_are_no_numbers(case, far, relation):
    """Also if they are not among the first rows."""
    pyarrow = pytest.importorskip("pyarrow")
    padding = [1.0, 2.0] * 60_000 if far else []
    frame = pyarrow.table({"x": pyarrow.array(padding + BAD[case], from_pandas=False)})
    message = f'^column "x" has {case}.*: drop or fill such rows in the table'
    with pytest.raises(ValueError, match=message):
        rows_of(frame, "x")


ENGINES = {
    "duckdb": lambda rows: pytest.importorskip("duckdb").from_arrow(rows),
    "polars": lambda rows: pytest.importorskip("polars").from_arrow(rows),
    "polars_lazy": lambda rows: pytest.importorskip("polars").from_arrow(rows).lazy(),
    "pandas": lambda rows: rows.to_pandas(),
    "pyarrow": lambda rows: rows,
    "dask": lambda rows: pytest.importorskip("dask.dataframe").from_pandas(
        rows.to_pandas(), npartitions=2
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_keys_of_engines_hide_no_missing_values_and_no_signs_of_zero(engine):
    pyarrow = pytest.importorskip("pyarrow")
    x = [0.0, -0.0, 1.0] * 40_000
    rows = rows_of(ENGINES[engine](pyarrow.table({"x": x})), "x")
    assert [v.tolist() for v in rows.columns.values()] == [[0, 1]]
    assert rows.counts.tolist() == [80_000, 40_000]
    assert not np.signbit([*rows.columns.values()]).any()
    for bad in (None, float("nan")):
        frame = pyarrow.table({"x": pyarrow.array([*x, bad], from_pandas=False)})
        with pytest.raises(ValueError, match=r'^column "x" has (missing values|NaN)'):
            rows_of(ENGINES[engine](frame), "x")


def test_refuses_integers_beyond_int64():
    frame = pd.DataFrame({"x": np.array([1, 2**63], np.uint64)})
    with pytest.raises(ValueError, match=r'^column "x" has integers beyond int64: cast it to'):
        rows_of(frame, "x")


def test_refuses_missing_levels():
    with pytest.raises(ValueError, match=r'^column "size" has missing values'):
        pymc_fastlogp.table(pd.DataFrame({"size": ["a", None]}))["size"]


def test_refuses_a_table_without_rows(relation):
    table = pymc_fastlogp.table(relation.filter("zone < 0"))
    with pytest.raises(ValueError, match=r"^the table has no rows"):
        summary_of(table, "zone")


def test_refuses_an_unknown_column(relation):
    with pytest.raises(KeyError, match="the table has no column 'zones', only zone, size, night"):
        pymc_fastlogp.table(relation)["zones"]


def test_refuses_columns_that_are_no_numbers(relation):
    table = pymc_fastlogp.table(relation.select("DATE '2020-01-01' AS day, [1, 2] AS list, income"))
    for column in ("day", "list"):
        with pytest.raises(TypeError, match=f'^column "{column}" is .*, no number: make a number'):
            table[column]
    with pytest.raises(TypeError, match=r'^column "income" is Float64, without levels'):
        table.levels("income")


@pytest.mark.parametrize("source", [3, [1, 2], {"a": [1]}, np.zeros(3)])
def test_refuses_other_sources(source):
    with pytest.raises(TypeError, match=r"^table\(\) does not read .*: give a path"):
        pymc_fastlogp.table(source)


def test_frames_of_engines_that_are_not_tested_are_refused(monkeypatch):
    monkeypatch.delitem(ENGINES_THAT_ARE_READ, "pandas")
    with pytest.raises(TypeError, match=r"^table\(\) does not read pandas frames: write the frame"):
        pymc_fastlogp.table(pd.DataFrame({"x": [1]}))


def test_refuses_other_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^no file matches .*\.parquet"):
        pymc_fastlogp.table(tmp_path / "*.parquet")
    with pytest.raises(ValueError, match=r"^table\(\) reads files with the endings \.parquet"):
        pymc_fastlogp.table(tmp_path / "rows.xlsx")


def test_each_engine_is_named_once():
    with pytest.raises(TypeError, match="Dask, Spark, ibis"):
        pymc_fastlogp.table({"x": [1]})


def test_a_corrupt_file_is_an_error(tmp_path):
    (tmp_path / "rows.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(
        RuntimeError, match=r"^DuckDB could not read .*rows.parquet: .*; look at the files"
    ):
        pymc_fastlogp.table(tmp_path / "rows.parquet")


@pytest.mark.parametrize("change", ["append", "add", "remove"])
def test_files_that_changed_are_refused(change, relation, tmp_path):
    first = relation.limit(100)
    for name in ("a", "b"):
        first.write_parquet(str(tmp_path / f"{name}.parquet"))
    table = pymc_fastlogp.table(tmp_path / "*.parquet")
    table["zone"]
    if change == "append":
        relation.limit(200).write_parquet(str(tmp_path / "a.parquet"))
    elif change == "add":
        first.write_parquet(str(tmp_path / "c.parquet"))
    else:
        (tmp_path / "b.parquet").unlink()
    with pytest.raises(
        ValueError, match=r"\.parquet has (changed|been removed) since table\(\) read it"
    ):
        summary_of(table, "zone")


def test_rows_that_were_added_are_refused():
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT i % 2 AS x FROM range(10) r(i)")
    table = pymc_fastlogp.table(connection.table("t"))
    assert table.n_rows == 10
    table["x"]
    connection.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(ValueError, match=r"^the table has 11 rows, and had 10"):
        summary_of(table, "x")


def test_rows_that_do_not_fit_into_memory_are_refused(relation, monkeypatch):
    monkeypatch.setattr("pymc_fastlogp.tables.engine_table.free_memory", lambda: 1_000_000)
    table = pymc_fastlogp.table(relation)
    with pytest.raises(
        ValueError,
        match=rf"^{N} rows of a table, 1.9 MB, do not fit into the memory that is free, 1.0 MB, and rows of zone, noise hardly"
        " repeat: round noise to fewer values in the table",
    ):
        summary_of(table, "zone", "noise")
    # Distinct rows do fit.
    assert summary_of(table, "zone").n_cells == 23


def test_rows_that_repeat_late_are_grouped():
    """The first rows are all distinct, and the table repeats them."""
    duckdb = pytest.importorskip("duckdb")
    rows = rows_of(duckdb.sql("SELECT i % 130000 AS x FROM range(1300000) t(i)"), "x")
    assert rows.n_rows == 1_300_000
    assert (rows.counts == 10).all()


def test_a_log_density_of_the_first_rows_warns_once(relation):
    table = pymc_fastlogp.table(relation)
    with pm.Model() as model:
        pm.Poisson("tips", pm.math.exp(pm.Normal("a")), observed=table["tips"])
    with pytest.warns(UserWarning, match=r"reads the first 1000 rows .* pymc_fastlogp\.sample\("):
        model.compile_dlogp()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.compile_dlogp()


def test_draws_and_reduced_models_do_not_warn(relation):
    table = pymc_fastlogp.table(relation)
    with pm.Model() as model:
        pm.Poisson("tips", pm.math.exp(pm.Normal("a")), observed=table["tips"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pm.draw(model["tips"]).shape == (1000,)
        without_tables(model).model.compile_dlogp()


def test_placeholders_of_another_process_are_refused(relation):
    zone = pymc_fastlogp.table(relation)["zone"]
    copy = pickle.loads(pickle.dumps(zone))
    np.testing.assert_array_equal(copy.get_value(), zone.get_value())
    assert column_of(copy).table is None
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a"), observed=copy)
    with pytest.raises(ValueError, match=r"^y reads a table of another process: call table\(\)"):
        without_tables(model)
    assert column_of(deepcopy(zone)) == column_of(zone)


def test_engines_are_asked_for_rows_and_their_numbers_alone():
    """On Dask, a grouped ``n_unique`` is wrong, and a grouped ``var`` cancels."""
    paths = (REPOSITORY / "pymc_fastlogp").rglob("*.py")
    nodes = (x for path in paths for x in ast.walk(ast.parse(path.read_text())))
    used = {
        x.attr
        for x in nodes
        if isinstance(x, ast.Attribute) and isinstance(x.value, ast.Name) and x.value.id == "nw"
    }
    assert used == {"from_native", "len", "Boolean", "Categorical", "Enum", "String"}
