"""Predictions for all rows of a table, in a Parquet file."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from arviz_base import from_dict

import pymc_fastlogp
from tests.tables.conftest import SOURCES

pytestmark = pytest.mark.usefixtures("engines")


def build(rows):
    with pm.Model() as model:
        size = pm.Normal("size", shape=3)
        mu = 100 * size[rows["size"]] + rows["income"]
        # So narrow that predictions are the means.
        pm.Normal("meter", mu, 1e-9, observed=rows["meter"])
    return model


@pytest.fixture(scope="module")
def draws():
    return from_dict({"posterior": {"size": np.random.default_rng(0).normal(size=(2, 3, 3))}})


@pytest.fixture(scope="module")
def model(relation):
    return build(pymc_fastlogp.table(relation.limit(500)))


def expected(draws, sizes, income):
    size = draws.posterior["size"].stack(sample=("chain", "draw")).to_numpy()
    return 100 * size[sizes] + np.asarray(income)[:, None]


def read(path):
    return pytest.importorskip("duckdb").read_parquet(str(path)).df()


@pytest.mark.parametrize("engine", SOURCES)
def test_each_row_has_its_draws(engine, relation, files, draws, model, tmp_path):
    path = tmp_path / "predictions.parquet"
    table = pymc_fastlogp.table(SOURCES[engine](relation.limit(2500), files))
    pymc_fastlogp.predict_to_parquet(
        draws, table, path, model=model, batch_size=50_000, progressbar=False
    )
    found = read(path)
    assert len(found) == table.n_rows
    assert [*found] == [*relation.columns, "meter_draws"]
    sizes = np.unique(found["size"].astype(str), return_inverse=True)[1]
    values = np.stack(found["meter_draws"])
    np.testing.assert_allclose(values, expected(draws, sizes, found["income"]), atol=1e-7)
    # Each row is there once.
    assert found["noise"].nunique() == table.n_rows


def test_new_rows_need_no_observed_column(draws, model, tmp_path):
    new = pd.DataFrame({"name": ["x", "y"], "size": ["small", "huge"], "income": [1, 2]})
    path = tmp_path / "new.parquet"
    pymc_fastlogp.predict_to_parquet(draws, new, path, model=model, progressbar=False)
    found = read(path)
    assert found["name"].tolist() == ["x", "y"]
    values = np.stack(found["meter_draws"])
    np.testing.assert_allclose(values, expected(draws, [2, 0], [1, 2]), atol=1e-7)
    with pytest.raises(KeyError, match="the new rows have no column 'income': add it"):
        pymc_fastlogp.predict_to_parquet(draws, new[["size"]], path, model=model, progressbar=False)


def test_equal_seeds_give_equal_draws(relation, tmp_path):
    with pm.Model() as model:
        table = pymc_fastlogp.table(relation.limit(50))
        pm.Poisson("tips", pm.math.exp(pm.Normal("a")) + table["night"], observed=table["tips"])
    draws = from_dict({"posterior": {"a": np.zeros((1, 4))}})
    values = []
    for k in range(2):
        path = tmp_path / f"{k}.parquet"
        pymc_fastlogp.predict_to_parquet(
            draws, table, path, model=model, random_seed=3, batch_size=20, progressbar=False
        )
        values.append(np.stack(read(path)["tips_draws"]))
    np.testing.assert_array_equal(*values)
    # Batches are independent.
    assert (values[0][:20] != values[0][20:40]).any()


def test_vectors_per_row(relation, tmp_path):
    with pm.Model() as model:
        table = pymc_fastlogp.table(relation.limit(50))
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("y", n=table["seats"], p=p, observed=_counts(table))
    draws = from_dict({"posterior": {"p": np.full((1, 4, 3), 1 / 3)}})
    path = tmp_path / "y.parquet"
    pymc_fastlogp.predict_to_parquet(draws, table, path, model=model, progressbar=False)
    found = read(path)
    values = np.array([[[*x] for x in row] for row in found["y_draws"]])
    assert values.shape == (50, 4, 3)
    np.testing.assert_array_equal(
        values.sum(2), np.repeat(found["seats"].to_numpy()[:, None], 4, 1)
    )


def _counts(table):
    import pytensor.tensor as pt

    seats = table["seats"]
    return pt.stack([seats, 0 * seats, 0 * seats], axis=1)


@pytest.fixture
def failing(monkeypatch):
    """Let the second batch of a Parquet file fail with an error."""
    parquet = pytest.importorskip("pyarrow.parquet")
    write = parquet.ParquetWriter.write_table

    def fail(error):
        calls = []

        def failing(self, table):
            calls.append(table)
            if len(calls) == 2:
                raise error
            write(self, table)

        monkeypatch.setattr(parquet.ParquetWriter, "write_table", failing)

    return fail


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_nothing_half_written_is_left(error, failing, draws, model, relation, tmp_path):
    path = tmp_path / "predictions.parquet"
    path.write_bytes(b"before")
    failing(error)
    with pytest.raises(type(error)) as raised:
        pymc_fastlogp.predict_to_parquet(
            draws, relation.limit(100), path, model=model, batch_size=40, progressbar=False
        )
    assert [*tmp_path.iterdir()] == [path]
    assert path.read_bytes() == b"before"
    if isinstance(error, OSError):
        assert str(raised.value).startswith(f"{path} could not be written: [Errno 28] No space")
        assert raised.value.__cause__ is error


def test_refuses(draws, model, relation, tmp_path):
    path = tmp_path / "predictions.parquet"

    def refused(error, message, draws=draws, model=model, rows=relation, **options):
        with pytest.raises(error, match=message):
            pymc_fastlogp.predict_to_parquet(
                draws, rows, path, model=model, progressbar=False, **options
            )
        assert not [*tmp_path.iterdir()]

    refused(ValueError, "^there are no rows to predict", rows=relation.filter("zone < 0"))
    others = from_dict({"posterior": {"a": np.zeros((1, 4))}})
    refused(ValueError, "^the draws have no size: sample all free variables", draws=others)
    refused(ValueError, "^size reads no table: give var_names", var_names=["size"])
    with pm.Model() as memory:
        pm.Normal("y", pm.Normal("size", shape=3), observed=np.zeros(3))
    refused(ValueError, "^the model reads no table", model=memory)
