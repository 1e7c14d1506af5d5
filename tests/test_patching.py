"""``patch_pymc`` redirects ``pm.sample`` in other libraries to ours, until ``unpatch_pymc``."""

import inspect
import os
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import nutpie
import pymc as pm
import pytest

import pymc_fastlogp
from pymc_fastlogp import patching

OPTIONS = {"draws": 10, "tune": 10, "chains": 1, "cores": 1, "progressbar": False, "quiet": True}
NAMES = ("pymc.sample", "pymc.sampling.sample", "pymc.sampling.mcmc.sample")
OWN_SAMPLE, OWN_COMPILE = pm.sample, nutpie.compile_pymc_model


@pytest.fixture(autouse=True)
def restored():
    """Undo each test's patch."""
    yield
    pymc_fastlogp.unpatch_pymc()


@pytest.fixture
def called(monkeypatch):
    """Record calls of our ``sample``."""
    calls = []
    monkeypatch.setattr(
        "pymc_fastlogp.sampling.sample", lambda *args, **kwargs: calls.append((args, kwargs))
    )
    return calls


def simple_model():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1.0, observed=[0.1, 0.5])
    return model


def test_the_import_patches_nothing():
    assert patching.patched_names() == ()
    assert pm.sample is pm.sampling.mcmc.sample
    assert not hasattr(pm.sample, "_pymc_fastlogp_original")


def test_patched_functions_are_listed_and_put_back():
    assert pymc_fastlogp.patch_pymc() == NAMES
    assert pm.sample is not OWN_SAMPLE
    assert nutpie.compile_pymc_model is OWN_COMPILE
    assert pymc_fastlogp.patch_pymc() == NAMES
    pymc_fastlogp.unpatch_pymc()
    assert pm.sample is pm.sampling.sample is pm.sampling.mcmc.sample is OWN_SAMPLE
    pymc_fastlogp.unpatch_pymc()
    assert pm.sample is OWN_SAMPLE


def test_signature_and_docstring_stay():
    with pymc_fastlogp.patched_pymc():
        assert inspect.signature(pm.sample) == inspect.signature(OWN_SAMPLE)
        assert pm.sample.__doc__ == OWN_SAMPLE.__doc__
        assert pm.sample.__name__ == "sample"


def test_a_block_restores_the_state_before_it(called):
    with pymc_fastlogp.patched_pymc():
        pm.sample(7, tune=3)
        with pymc_fastlogp.patched_pymc(nutpie=True):
            assert nutpie.compile_pymc_model is not OWN_COMPILE
        assert nutpie.compile_pymc_model is OWN_COMPILE
        assert pm.sample is not OWN_SAMPLE
    assert called == [((7,), {"tune": 3})]
    assert pm.sample is OWN_SAMPLE


def test_the_default_of_libraries_is_no_choice_of_a_sampler(called):
    with pymc_fastlogp.patched_pymc():
        pm.sample(nuts_sampler="pymc")
        pm.sample(nuts_sampler="blackjax")
    assert called == [((), {"nuts_sampler": None}), ((), {"nuts_sampler": "blackjax"})]


def test_an_error_in_a_block_restores_too():
    with pytest.raises(KeyError), pymc_fastlogp.patched_pymc():
        raise KeyError
    assert pm.sample is OWN_SAMPLE


def test_a_name_imported_before_the_patch_stays_pymcs():
    with pymc_fastlogp.patched_pymc():
        from pymc import sample
    assert sample is not OWN_SAMPLE
    assert patching.unpatched(sample) is OWN_SAMPLE


def test_draws_are_those_of_sample():
    expected = pymc_fastlogp.sample(model=simple_model(), random_seed=3, **OPTIONS)
    with pymc_fastlogp.patched_pymc(), simple_model():
        found = pm.sample(random_seed=3, **OPTIONS)
    assert found.posterior.equals(expected.posterior)
    assert set(found.children) == set(expected.children)


def test_models_that_pymc_samples_are_sampled_by_pymc():
    """A call of the patched function from itself would recurse without end."""
    with pymc_fastlogp.patched_pymc(nutpie=True), pm.Model():
        pm.Bernoulli("k", 0.3)
        found = pm.sample(random_seed=3, **OPTIONS)
    assert found.posterior["k"].shape == (1, 10)


def test_nutpies_models_keep_shared_data():
    with pm.Model() as model:
        x = pm.Data("x", np.arange(3.0))
        pm.Normal("y", pm.Normal("b") * x, 1.0, observed=np.ones(3))
    with pymc_fastlogp.patched_pymc(nutpie=True):
        compiled = nutpie.compile_pymc_model(model)
    assert hasattr(compiled, "logp_dlogp")
    before = compiled.logp_dlogp([1.0])[0]
    assert compiled.with_data(x=np.zeros(3)).logp_dlogp([1.0])[0] != before


def test_a_function_that_moved_is_an_error_and_nothing_is_patched(monkeypatch):
    monkeypatch.delattr("pymc.sampling.mcmc.sample")
    with pytest.raises(
        RuntimeError, match=r"pymc\.sampling\.mcmc\.sample is not there, so nothing"
    ):
        pymc_fastlogp.patch_pymc()
    assert pm.sample is OWN_SAMPLE
    assert patching.patched_names() == ()


SCRIPT = """
import sys
import pymc as pm
print(hasattr(pm.sample, "_pymc_fastlogp_original"), __name__, sys.argv[1:])
"""


def environment(**variables):
    root = str(Path(__file__).parents[1])
    return os.environ | {"PYTHONPATH": root} | variables


def test_run_patches_a_script(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "pymc_fastlogp", "run", "script.py", "--fast", "3"]
    process = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert process.stdout == "True __main__ ['--fast', '3']\n", process.stderr


def test_the_environment_variable_patches_at_import(tmp_path):
    (tmp_path / "script.py").write_text("import pymc_fastlogp" + SCRIPT)
    process = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=environment(PYMC_FASTLOGP_PATCH="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.stdout == "True __main__ []\n", process.stderr


def is_patched(_):
    return hasattr(pm.sample, "_pymc_fastlogp_original")


def test_a_pool_of_processes_patches_by_its_initializer():
    with ProcessPoolExecutor(
        1, mp_context=get_context("spawn"), initializer=pymc_fastlogp.patch_pymc
    ) as pool:
        assert pool.submit(is_patched, None).result()


def test_the_patched_function_is_pickled_by_name():
    with pymc_fastlogp.patched_pymc():
        assert pickle.loads(pickle.dumps(pm.sample)) is pm.sample


class ModelClass:
    """A model class as pymc-marketing builds them: it owns the model, and calls ``pm.sample`` in ``fit``."""

    def fit(self, y, **options):
        with pm.Model() as self.model:
            pm.Normal("y", pm.Normal("mu"), 1.0, observed=y)
            self.idata = pm.sample(**options)
            self.idata = pm.sample_posterior_predictive(
                self.idata, extend_inferencedata=True, progressbar=False
            )
        return self.idata


def test_a_model_class_is_sampled_by_ours():
    with pymc_fastlogp.patched_pymc():
        idata = ModelClass().fit(np.ones(4), random_seed=1, **OPTIONS)
    expected = ModelClass().fit(np.ones(4), random_seed=1, **OPTIONS)
    assert set(idata.children) == set(expected.children)
    assert idata.posterior_predictive["y"].shape == (1, 10, 4)


def test_repeated_simulation_and_refit_are_sampled_by_ours():
    """Simulation-based calibration, as simuk loops: draw data from the prior, fit, rank."""
    model = simple_model()
    prior = pm.sample_prior_predictive(3, model=model, random_seed=2)
    ranks = []
    with pymc_fastlogp.patched_pymc():
        for k in range(3):
            simulated = prior.prior_predictive["y"].values[0, k]
            with simulated_model(simulated):
                draws = pm.sample(random_seed=k, **OPTIONS).posterior["mu"].values
            ranks.append(int((draws < prior.prior["mu"].values[0, k]).sum()))
    assert len(ranks) == 3
    assert all(0 <= rank <= 10 for rank in ranks)


def simulated_model(y):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=y)
    return model
