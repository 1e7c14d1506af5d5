"""Fits in a store: formats, values, and runs that go on."""

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import pymc_fastlogp
from tests.many.conftest import OPTIONS, data_set, fit_all

FORMATS = ["fits", "fits.zarr"]
DATA = {"a/b": data_set(1), "1.5": data_set(2), "c": data_set(3)}


def by_key(fits) -> dict:
    return {fit.key: fit for fit in fits}


@pytest.mark.parametrize("name", FORMATS)
def test_values_are_those_without_a_store(model, here, tmp_path, name):
    without = by_key(fit_all(model, DATA, executor=here))
    for fit in fit_all(model, DATA, executor=here, store=tmp_path / name):
        expected = without[fit.key]
        assert fit.random_seed == expected.random_seed
        assert fit.problems == expected.problems
        for group in ("posterior", "sample_stats", "observed_data"):
            xr.testing.assert_equal(
                fit.result()[group].to_dataset(), expected.value[group].to_dataset()
            )


@pytest.mark.parametrize("name", FORMATS)
def test_a_run_goes_on_where_it_stopped(model, here, tmp_path, name):
    options = {"executor": here, "store": tmp_path / name, "keep": ["mu"]}
    first = by_key(fit_all(model, dict([*DATA.items()][:2]), **options))
    fits = by_key(fit_all(model, DATA, **options))
    assert {key: fit.was_stored for key, fit in fits.items()} == {
        "a/b": True,
        "1.5": True,
        "c": False,
    }
    for key, fit in first.items():
        xr.testing.assert_equal(fit.value, fits[key].value)
        assert (fit.random_seed, fit.seconds) == (fits[key].random_seed, fits[key].seconds)


@pytest.mark.parametrize("name", FORMATS)
def test_a_value_without_its_note_is_written_again(model, here, tmp_path, name):
    folder = tmp_path / name
    fit_all(model, DATA, executor=here, store=folder, keep=["mu"])
    (folder / "c.json").unlink()
    fits = by_key(fit_all(model, DATA, executor=here, store=folder, keep=["mu"]))
    assert [key for key, fit in fits.items() if not fit.was_stored] == ["c"]
    assert json.loads((folder / "c.json").read_text())["kind"] == "Dataset"


def test_stored_fits_come_in_order_on_request(model, here, tmp_path):
    options = {"executor": here, "store": tmp_path, "keep": ["mu"]}
    fit_all(model, {"c": DATA["c"]}, **options)
    assert [fit.key for fit in fit_all(model, DATA, **options, in_order=True)] == [*DATA]


def test_fits_that_failed_run_again(model, here, tmp_path):
    broken = []

    def keep(idata):
        if not broken:
            broken.append(True)
            raise OSError("full")
        return idata["posterior"].to_dataset()

    options = {"executor": here, "store": tmp_path, "draws": 100}
    fits = fit_all(model, {"a": data_set(1), "b": data_set(2)}, **options, keep=keep)
    failed = [fit.key for fit in fits if fit.error]
    fits = fit_all(model, {"a": data_set(1), "b": data_set(2)}, **options, keep=["mu"])
    assert [fit.key for fit in fits if not fit.was_stored] == failed


def test_fits_of_other_data_or_settings_are_refused(model, here, tmp_path):
    options = {"executor": here, "store": tmp_path}
    fit_all(model, {"a": data_set(1)}, **options)
    with pytest.raises(ValueError, match="other data or settings"):
        fit_all(model, {"a": data_set(2)}, **options)
    with pytest.raises(ValueError, match="other data or settings"):
        fit_all(model, {"a": data_set(1)}, **options, draws=101)


def test_a_data_frame(model, here, tmp_path):
    def keep(idata):
        return pd.DataFrame({"mean": [float(idata.posterior["mu"].mean())]}, index=["mu"])

    [fit] = fit_all(model, [data_set(1)], executor=here, store=tmp_path, keep=keep)
    [expected] = fit_all(model, [data_set(1)], executor=here, keep=keep)
    assert fit.result().loc["mu", "mean"] == expected.value.loc["mu", "mean"]


def test_another_value_is_an_error_that_says_what_to_do(model, here, tmp_path):
    [fit] = fit_all(model, [data_set(1)], executor=here, store=tmp_path, keep=lambda x: 1.0)
    with pytest.raises(TypeError, match="can't hold an object of type float"):
        fit.result()


def test_a_missing_package_is_named(model, tmp_path, monkeypatch):
    monkeypatch.setattr("pymc_fastlogp.many.store.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install netcdf4"):
        pymc_fastlogp.sample_many(model, [data_set(1)], store=tmp_path, **OPTIONS)


def test_values_are_read_when_they_are_used(model, here, tmp_path):
    [fit] = fit_all(model, [data_set(1)], executor=here, store=tmp_path)
    assert "value" not in vars(fit)
    assert np.isfinite(fit.result().posterior["mu"]).all()
