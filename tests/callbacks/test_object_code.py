"""Machine code contains neither addresses nor data: data of the same shapes find it on disk."""

import numpy as np
import pymc as pm
import pytest

import pymc_fastlogp
from pymc_fastlogp.kernel.native import object_files
from pymc_fastlogp.model_cache import store
from tests.callbacks.test_shared_data import regression


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The names of the object files that were made, in an empty folder; no models are kept."""
    names, files = [], {}

    def write(name, code):
        names.append(name)
        files[name] = code

    monkeypatch.setenv(store.ENVIRONMENT_VARIABLE, "0")
    monkeypatch.setattr(object_files, "read", files.get)
    monkeypatch.setattr(object_files, "write", write)
    return names


def logistic(seed):
    """Frozen data that are too many for the code and that no rule of rows takes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(700, 3))
    with pm.Model() as model:
        design, y = pm.Data("x", x), pm.Data("y_data", rng.integers(2, size=700))
        beta = pm.Normal("beta", shape=3)
        pm.Bernoulli("y", logit_p=design @ beta + x[:, 0] ** 2, observed=y)
    return model


def test_code_of_frozen_data_is_found_with_other_values(made):
    one = pymc_fastlogp.compile_pymc_model(logistic(0))
    first = [*made]
    # A kernel and a callback for the density, a callback for what is stored.
    assert len(first) == 3
    other = pymc_fastlogp.compile_pymc_model(logistic(1))
    assert made == first
    x = one.initial_point_func(0)
    assert one.logp_dlogp(x)[0] != other.logp_dlogp(x)[0]


@pytest.mark.parametrize("n", [30, 47])
def test_code_of_shared_data_is_found_with_other_values_and_lengths(n, made):
    pymc_fastlogp.compile_pymc_model(regression(30), freeze_model=False)
    first = [*made]
    # Of both sides the kernel and the callback.
    assert len(first) == 4
    pymc_fastlogp.compile_pymc_model(regression(n, seed=1), freeze_model=False)
    assert made == first
