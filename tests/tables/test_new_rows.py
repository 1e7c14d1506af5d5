"""New rows of a table: for predictions, and added to the table."""

import warnings

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_fastlogp
from pymc_fastlogp import file_cache
from pymc_fastlogp.models.table_rows import without_tables
from pymc_fastlogp.tables.plan import Way
from tests.tables.conftest import SOURCES, assert_equal_densities

pytestmark = pytest.mark.usefixtures("engines")


def build(rows, n_sizes=3):
    with pm.Model() as model:
        zone, size = pm.Normal("zone", shape=23), pm.Normal("size", shape=n_sizes)
        b = pm.Normal("b")
        eta = zone[rows["zone"]] + size[rows["size"]] + b * rows["income"]
        pm.Poisson("tips", pm.math.exp(eta), observed=rows["tips"])
    return model


NEW = pd.DataFrame(
    {"zone": [3, 20], "size": ["small", "huge"], "income": [0.5, 7.25], "tips": [1, 9]}
)


def test_placeholders_take_new_rows_and_go_back(relation):
    table = pymc_fastlogp.table(relation)
    model = build(table)
    before = {name: table[name].get_value() for name in NEW}
    with table.use(NEW):
        assert table["zone"].get_value().tolist() == [3, 20]
        assert table["size"].get_value().tolist() == [2, 0]
        assert table["income"].get_value().tolist() == [0.5, 7.25]
        assert {name: table[name].get_value().dtype for name in NEW} == {
            name: x.dtype for name, x in before.items()
        }
        assert pm.draw(model["tips"]).shape == (2,)
    for name, x in before.items():
        np.testing.assert_array_equal(table[name].get_value(), x)


def test_placeholders_go_back_after_an_error(relation):
    table = pymc_fastlogp.table(relation)
    before = table["zone"].get_value()
    with pytest.raises(KeyError), table.use(NEW):
        {}["nothing"]
    np.testing.assert_array_equal(table["zone"].get_value(), before)


@pytest.mark.parametrize("engine", SOURCES)
def test_new_rows_of_each_engine(engine, relation, files):
    table = pymc_fastlogp.table(relation)
    build(table)
    with table.use(SOURCES[engine](relation, files)):
        values = {name: np.sort(table[name].get_value()) for name in NEW}
    expected = relation.select("zone, income, tips").fetchnumpy()
    for name, x in expected.items():
        np.testing.assert_array_equal(values[name], np.sort(x))
    assert len(values["size"]) == len(values["zone"])


def test_whole_numbers_are_floats_of_the_table(relation):
    table = pymc_fastlogp.table(relation)
    table["income"], table["night"]
    with table.use(pd.DataFrame({"income": [1, 2], "night": [True, False]})):
        assert table["income"].get_value().dtype == np.float64


def test_predicted_columns_may_be_missing(relation):
    table = pymc_fastlogp.table(relation)
    model = build(table)
    with table.use(NEW.drop(columns="tips"), predicted="tips"):
        assert pm.draw(model["tips"]).shape == (2,)


# From new rows to rows that are refused, with the error.
REFUSED = {
    "level": (lambda x: x.assign(size="giant"), ValueError, 'column "size" has a new level'),
    "missing_column": (
        lambda x: x.drop(columns="income"),
        KeyError,
        "the new rows have no column 'income': add it",
    ),
    "floats_for_integers": (
        lambda x: x.assign(zone=[0.5, 1.0]),
        TypeError,
        'column "zone" is Float64 in the new rows, and Int32 in the table: cast it',
    ),
    "text_for_numbers": (
        lambda x: x.assign(zone=["a", "b"]),
        TypeError,
        'column "zone" is String in the new rows, and Int32 in the table: cast it',
    ),
    "numbers_for_text": (
        lambda x: x.assign(size=[0, 1]),
        TypeError,
        'column "size" is Int64 in the new rows, and String in the table: cast it',
    ),
    "missing_value": (
        lambda x: x.assign(income=[np.nan, 1.0]),
        ValueError,
        'column "income" has (missing values|NaN)',
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_new_rows_that_do_not_match_are_refused(case, relation):
    change, error, message = REFUSED[case]
    relation = relation.select("zone, size, income, tips").limit(5000)
    table = pymc_fastlogp.table(relation)
    model = build(table)
    without_tables(model)
    with pytest.raises(error, match=message), table.use(change(NEW)):
        pass
    with pytest.raises(error, match=message):
        table.update(change(NEW))
    # Nothing has changed.
    assert table["zone"].get_value().shape == (1000,)
    assert table.n_rows == without_tables(model).tables["tips"].rows.n_rows == 5000


def whole(*frames):
    """Return the columns of frames, with codes for sizes."""
    rows = pd.concat(frames)
    sizes = np.unique(rows["size"].astype(str), return_inverse=True)[1]
    return {name: rows[name].to_numpy() if name != "size" else sizes for name in NEW}


@pytest.mark.parametrize("is_read_before", [False, True])
def test_added_rows_give_the_density_of_all_rows(is_read_before, relation):
    columns = relation.select("zone, size, income, tips")
    first, second = (columns.limit(4000, offset=x) for x in (0, 4000))
    table = pymc_fastlogp.table(first)
    model = build(table)
    if is_read_before:
        without_tables(model)
    table.update(second)
    table.update(NEW)
    reduced, tables = without_tables(model)
    assert table.n_rows == tables["tips"].rows.n_rows == 8002
    assert_equal_densities(reduced, build(whole(first.df(), second.df(), NEW)))


def test_the_representation_counts_added_rows(relation):
    table = pymc_fastlogp.table(relation.limit(300))
    table.update(relation.limit(50))
    assert repr(table).startswith("Table in DuckDB\n")
    assert table.n_rows == 350
    assert repr(table).startswith("Table in DuckDB, 350 rows\n")


def test_added_rows_are_merged_as_if_read_at_once(relation):
    columns = relation.select("zone, size, income, tips")
    grown, whole = (
        pymc_fastlogp.table(columns.limit(4000)),
        pymc_fastlogp.table(columns.limit(9000)),
    )
    model = build(grown)
    without_tables(model)
    grown.update(columns.limit(5000, offset=4000))
    ours, theirs = (without_tables(x).tables["tips"].rows for x in (model, build(whole)))
    np.testing.assert_array_equal(ours.counts, theirs.counts)
    for x, y in zip(ours.columns.values(), theirs.columns.values(), strict=True):
        np.testing.assert_array_equal(x, y)


def test_only_new_rows_are_read(relation, monkeypatch):
    columns = relation.select("zone, size, income, tips")
    table = pymc_fastlogp.table(columns.limit(4000))
    model = build(table)
    without_tables(model)
    read = []
    own = type(table)._read

    def counted(self, *arguments):
        rows = own(self, *arguments)
        read.append(rows.n_rows)
        return rows

    monkeypatch.setattr(type(table), "_read", counted)
    table.update(columns.limit(300, offset=4000))
    without_tables(model)
    assert read == [300]


def normal(rows):
    with pm.Model() as model:
        b, sigma = pm.Normal("b"), pm.HalfNormal("sigma")
        pm.Normal("noise", b * rows["night"], sigma, observed=rows["noise"])
    return model


def student_t(rows):
    with pm.Model() as model:
        b, sigma = pm.Normal("b"), pm.HalfNormal("sigma")
        pm.StudentT("noise", nu=3, mu=b * rows["night"], sigma=sigma, observed=rows["noise"])
    return model


@pytest.mark.parametrize(("build", "way"), [(normal, Way.FACTORED), (student_t, Way.LOADED)])
def test_factors_and_loaded_rows_grow(build, way, relation):
    columns = relation.select("noise, night")
    first, second = (columns.limit(200, offset=x) for x in (0, 200))
    table = pymc_fastlogp.table(first)
    model = build(table)
    assert without_tables(model).tables["noise"].plan.way is way
    table.update(second)
    rows = pd.concat([first.df(), second.df()])
    reduced, tables = without_tables(model)
    assert tables["noise"].rows.n_rows == 400
    assert_equal_densities(reduced, build({x: rows[x].to_numpy() for x in rows}))


def test_a_file_that_is_added_to_the_folder_of_a_table(relation, tmp_path, monkeypatch):
    """A later process finds both on disk."""
    monkeypatch.setenv(file_cache.ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))
    columns = relation.select("zone, size, income, tips")
    columns.limit(4000).write_parquet(str(tmp_path / "1.parquet"))
    table = pymc_fastlogp.table(tmp_path / "*.parquet")
    model = build(table)
    without_tables(model)
    columns.limit(300, offset=4000).write_parquet(str(tmp_path / "2.parquet"))
    with pytest.raises(ValueError, match=r"2\.parquet has changed since table\(\) read it"):
        without_tables(model)
    table.update(tmp_path / "2.parquet")
    first = without_tables(model).tables["tips"]
    table = pymc_fastlogp.table(tmp_path / "1.parquet")
    model = build(table)
    table.update(tmp_path / "2.parquet")
    again = without_tables(model).tables["tips"]
    assert (first.is_from_disk, again.is_from_disk) == (False, True)
    assert again.rows.n_rows == 4300
    np.testing.assert_array_equal(again.rows.counts, first.rows.counts)


def test_new_rows_do_not_warn(relation):
    table = pymc_fastlogp.table(relation)
    model = build(table)
    with warnings.catch_warnings(), table.use(NEW):
        warnings.simplefilter("error", UserWarning)
        model.compile_fn(model.logp(sum=False), inputs=model.value_vars)
