"""Log likelihoods of all rows of a table, in a zarr store."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_base import from_dict

import pymc_fastlogp
from pymc_fastlogp.sampling import row_log_likelihood
from tests.tables.conftest import SOURCES

pytestmark = pytest.mark.usefixtures("engines")

N = 2500


def build(rows):
    with pm.Model() as model:
        size, sigma = pm.Normal("size", shape=3), pm.HalfNormal("sigma")
        mu = size[rows["size"]] + sigma * rows["income"]
        pm.Normal("noise", mu, sigma, observed=rows["noise"])
        pm.Poisson("tips", sigma, observed=rows["tips"])
        pm.Normal("other", size, sigma, observed=np.zeros(3))
    return model


@pytest.fixture(scope="module")
def draws():
    rng = np.random.default_rng(0)
    return from_dict(
        {"posterior": {"size": rng.normal(size=(2, 3, 3)), "sigma": rng.gamma(5, 1, size=(2, 3))}}
    )


@pytest.fixture(scope="module")
def expected(relation, draws):
    rows = {name: np.asarray(x) for name, x in relation.limit(N).fetchnumpy().items()}
    rows["size"] = np.unique(rows["size"].astype(str), return_inverse=True)[1]
    found = pm.compute_log_likelihood(
        draws, model=build(rows), progressbar=False, extend_inferencedata=False
    )
    order = np.argsort(rows["noise"])
    return {name: found[name].to_numpy()[..., order] for name in ("noise", "tips")}


@pytest.mark.parametrize("engine", ["duckdb", "polars", "pandas", "pyarrow", "dask"])
def test_each_row_has_its_log_likelihood(engine, relation, files, draws, expected, tmp_path):
    table = pymc_fastlogp.table(SOURCES[engine](relation.limit(N), files))
    model = build(table)
    first = table["noise"].get_value()
    path = tmp_path / "rows.zarr"
    found = pymc_fastlogp.log_likelihood_to_zarr(
        draws, path, model=model, batch_size=700, progressbar=False
    )
    assert [*tmp_path.iterdir()] == [path]
    assert {*found["log_likelihood"].data_vars} == {"noise", "tips"}
    assert {*found["rows"].data_vars} == {"codes(size)", "income", "noise", "tips"}
    order = np.argsort(found["rows"]["noise"].to_numpy())
    for name, values in expected.items():
        of_rows = found["log_likelihood"][name]
        assert of_rows.dims == ("chain", "draw", "row")
        np.testing.assert_allclose(of_rows.to_numpy()[..., order], values, rtol=1e-13)
    np.testing.assert_array_equal(table["noise"].get_value(), first)


def test_batches_have_as_many_values_for_any_number_of_draws(
    relation, draws, tmp_path, monkeypatch
):
    monkeypatch.setattr(row_log_likelihood, "BATCH", 40 * 6)
    model = build(pymc_fastlogp.table(relation.limit(100)))
    found = pymc_fastlogp.log_likelihood_to_zarr(
        draws, tmp_path / "y.zarr", model=model, progressbar=False
    )
    values = found["log_likelihood"]["noise"]
    assert values.sizes == {"chain": 2, "draw": 3, "row": 100}
    assert values.encoding["chunks"] == (2, 3, 40)


def test_several_values_per_row(relation, draws, tmp_path):
    table = pymc_fastlogp.table(relation.limit(50))
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma")
        observed = pt.stack([table["income"], table["noise"]], axis=0)
        pm.Normal("y", sigma, observed=observed)
    found = pymc_fastlogp.log_likelihood_to_zarr(
        draws, tmp_path / "y.zarr", model=model, batch_size=20, progressbar=False
    )
    assert found["log_likelihood"]["y"].sizes == {"chain": 2, "draw": 3, "y_dim_0": 2, "row": 50}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_nothing_half_written_is_left(error, draws, relation, tmp_path, monkeypatch):
    xarray = pytest.importorskip("xarray")
    write = xarray.Dataset.to_zarr
    calls = []

    def failing(self, *arguments, **options):
        calls.append(self)
        if len(calls) == 4:
            raise error
        return write(self, *arguments, **options)

    monkeypatch.setattr(xarray.Dataset, "to_zarr", failing)
    model = build(pymc_fastlogp.table(relation.limit(100)))
    path = tmp_path / "rows.zarr"
    with pytest.raises(type(error)) as raised:
        pymc_fastlogp.log_likelihood_to_zarr(
            draws, path, model=model, batch_size=40, progressbar=False
        )
    assert not [*tmp_path.iterdir()]
    if isinstance(error, OSError):
        assert str(raised.value).startswith(f"{path} could not be written: [Errno 28] No space")


def test_refuses(draws, relation, tmp_path):
    model = build(pymc_fastlogp.table(relation.limit(10)))
    path = tmp_path / "rows.zarr"
    path.mkdir()
    with pytest.raises(FileExistsError, match="exists: give a new path"):
        pymc_fastlogp.log_likelihood_to_zarr(draws, path, model=model)
    path.rmdir()
    with pytest.raises(ValueError, match=r"^other observes no table: call pm.compute_log_like"):
        pymc_fastlogp.log_likelihood_to_zarr(draws, path, model=model, var_names=["other"])
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("sigma"), observed=np.zeros(3))
    with pytest.raises(ValueError, match=r"^the model observes no table"):
        pymc_fastlogp.log_likelihood_to_zarr(draws, path, model=model)
    tables = [pymc_fastlogp.table(relation.limit(10)) for _ in "12"]
    with pm.Model() as model:
        for k, table in enumerate(tables):
            pm.Normal(f"y{k}", pm.Normal(f"a{k}"), observed=table["noise"])
    with pytest.raises(ValueError, match=r"^y0, y1 reads 2 tables"):
        pymc_fastlogp.log_likelihood_to_zarr(draws, path, model=model)
    assert not [*tmp_path.iterdir()]
