"""A reparametrized model is used like any other, from prior to predictions."""

import logging
import warnings

import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_fastlogp
from tests.conftest import PYTHON
from tests.reparametrization import models
from tests.reparametrization.models import COUNT, GROUP
from tests.slices import examples

OPTIONS = {"progressbar": False, "quiet": True, "cores": 1, "random_seed": 1}
# As of ArviZ's estimate of the error of a mean, for all entries of a model together.
MOST_ERRORS = 6.0


def with_predictions() -> pm.Model:
    with pm.Model(coords={"g": range(models.GROUPS)}) as model:
        group = pm.Data("group", GROUP)
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        raw = pm.Normal("raw", dims="g")
        a = pm.Deterministic("a", mu + tau * raw, dims="g")
        pm.Poisson("y", pm.math.exp(a[group]), observed=COUNT, shape=group.shape)
    return model


@pytest.mark.parametrize("is_on", [True, False], ids=["on", "off"])
def test_workflow_from_prior_to_predictions_warns_of_nothing(is_on, caplog, capfd):
    model = pymc_fastlogp.reparametrize(with_predictions())
    if not is_on:
        pymc_fastlogp.disable()
    with warnings.catch_warnings(), model, caplog.at_level(logging.WARNING):
        warnings.simplefilter("error", UserWarning)
        prior = pm.sample_prior_predictive(50, random_seed=1)
        idata = pm.sample(100, tune=100, chains=2, **OPTIONS)
        pm.compute_log_likelihood(idata, progressbar=False)
        pm.set_data({"group": np.array([3, 0, 1])})
        predictions = pm.sample_posterior_predictive(
            idata, predictions=True, progressbar=False, random_seed=1
        )
    assert prior.prior["raw"].shape == (1, 50, models.GROUPS)
    assert idata.posterior["a"].dims == ("chain", "draw", "g")
    np.testing.assert_allclose(
        idata.posterior["a"],
        idata.posterior["mu"] + idata.posterior["tau"] * idata.posterior["raw"],
        rtol=1e-12,
    )
    assert idata.log_likelihood["y"].shape == (2, 100, len(COUNT))
    assert predictions.predictions["y"].shape == (2, 100, 3)
    assert not [x.message for x in caplog.records if x.levelno >= logging.WARNING]
    assert not capfd.readouterr().err


@pytest.mark.parametrize(
    "make",
    [
        models.pair,
        models.crossed,
        models.correlated,
        models.with_coefficients,
        models.zero_sum_raw,
    ],
)
def test_the_posterior_is_that_of_the_model_as_written(make):
    draws = {"draws": 2000, "tune": 1000, "chains": 2, **OPTIONS}
    one, other = (
        pymc_fastlogp.sample(model=make(), reparametrize=x, **draws) for x in (True, False)
    )
    assert set(one.posterior.data_vars) == set(other.posterior.data_vars)
    for name in make().free_RVs:
        parts = [x.posterior[name.name] for x in (one, other)]
        errors = [np.asarray(az.mcse(x)[name.name]) for x in (one, other)]
        difference = parts[0].mean(("chain", "draw")) - parts[1].mean(("chain", "draw"))
        assert (np.abs(difference) <= MOST_ERRORS * np.hypot(*errors)).all(), name.name


def test_sample_uses_what_the_pilot_has_compiled():
    compiled = pymc_fastlogp.compile_pymc_model(models.pair(), reparametrize=True)
    new = pymc_fastlogp.reparametrize(models.pair())
    constant = pymc_fastlogp.compile_pymc_model(new)
    rng = np.random.default_rng(0)
    values = {name: rng.normal(size=models.GROUPS) for name in ("a_site__", "raw_site__")}
    values["tau_scale__"] = rng.normal(size=2)
    found = []
    for one in (compiled, constant):
        names = one.shape_info[0][:3]
        logp, gradient = one.logp_dlogp(np.concatenate([values[x] for x in names]))
        parts = {x: gradient[place] for x, place in zip(names, one.shape_info[1], strict=False)}
        found.append((logp, np.concatenate([parts[x] for x in values])))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-10, atol=1e-12)


def test_one_kernel_computes_all():
    for make in examples([models.pair], [models.pair, models.correlated, models.zero_sum]):
        kernels = pymc_fastlogp.explain(pymc_fastlogp.reparametrize(make())).kernels
        assert len(kernels.n_nodes) == 1, make.__name__
        assert not kernels.outside, make.__name__


def test_a_model_that_cannot_be_copied_is_returned_as_it_is(caplog):
    with pm.Model() as with_symbols:
        mean = pm.Normal("mean")
        pm.Normal("x", mean, pm.HalfNormal("tau"), shape=4, initval=mean + np.zeros(4))
    with pm.Model(), pm.Model("inner") as inner:
        pm.Normal("x", 0, pm.HalfNormal("tau"), shape=4)
    for model in (with_symbols, inner):
        caplog.clear()
        with caplog.at_level(logging.INFO, "pymc_fastlogp"):
            assert pymc_fastlogp.reparametrize(model) is model
        assert "cannot copy" in caplog.text


def test_a_model_without_effects_is_the_same(caplog):
    with pm.Model() as model:
        pm.Normal("x", shape=3)
    with caplog.at_level(logging.INFO, logger="pymc_fastlogp"):
        new = pymc_fastlogp.reparametrize(model)
    assert [x.name for x in new.value_vars] == ["x"]
    assert "x is not reparametrized: its prior has no parameters" in caplog.text


def test_prior_draws_have_as_many_effects_as_the_data_say():
    with pm.Model() as model:
        names = pm.Data("names", np.arange(4), dims="g")
        tau = pm.HalfNormal("tau")
        a = pm.ZeroSumNormal("a", tau, dims="g")
        pm.Normal("y", a[GROUP], 0.5, observed=models.Y)
    new = pymc_fastlogp.reparametrize(model)
    assert "a_site__" in [x.name for x in new.value_vars]
    with new:
        pm.set_data({names.name: np.arange(6)}, coords={"g": np.arange(6)})
        draws = pm.sample_prior_predictive(3, var_names=["a"], random_seed=1).prior["a"]
    assert draws.shape == (1, 3, 6)
    np.testing.assert_allclose(draws.sum("g"), 0, atol=1e-12)


def test_do_and_observe():
    new = pymc_fastlogp.reparametrize(models.pair())
    with pm.observe(new, {"a": np.zeros(models.GROUPS)}) as observed:
        assert np.isfinite(observed.compile_logp(mode=PYTHON)(observed.initial_point()))
    with pm.do(new, {"tau": np.ones(2)}) as done:
        assert np.isfinite(done.compile_logp(mode=PYTHON)(done.initial_point()))


def test_initial_values_of_effects_leave_them_as_they_are():
    compiled = pymc_fastlogp.compile_pymc_model(
        models.pair(), reparametrize=True, initial_points={"a": np.ones(models.GROUPS)}
    )
    assert "a" in compiled.shape_info[0]
    assert "raw_site__" in compiled.shape_info[0]


def test_a_model_stays_as_it_is_where_the_plugin_is_off(caplog):
    pymc_fastlogp.disable()
    with caplog.at_level(logging.INFO, logger="pymc_fastlogp"):
        new = pymc_fastlogp.reparametrize(models.centered())
    assert "a" in [x.name for x in new.value_vars]
    assert "nutpie compiled the model" in caplog.text


def test_shared_data_index_makes_an_effect():
    with pm.Model() as model:
        tau, one = pm.HalfNormal("tau"), pm.Data("one", 1.0)
        raw = pm.Normal("raw", 0, one, shape=models.GROUPS)
        pm.Normal("y", (tau * raw)[GROUP], 0.5, observed=models.Y)
    new = pymc_fastlogp.reparametrize(model)
    assert "raw_site__" in [x.name for x in new.value_vars]
