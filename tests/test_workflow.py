"""A user's workflow from prior to predictions gives the same draws and no additional warnings."""

import logging
import warnings
from collections.abc import Callable

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from xarray import DataTree

from pymc_fastlogp import compile_kwargs, disabled
from tests.conftest import PYTHON

RNG = np.random.default_rng(0)
N, GROUPS = 60, 4
GROUP = RNG.integers(0, GROUPS, N)
X = RNG.normal(size=N).round(1)
Y = RNG.normal(size=N).round(1)
COUNT = RNG.poisson(1.0, N)
LEVEL = RNG.integers(0, 3, N)

# What predictions are made for; a dose is missing in some rows, so that there are as many wards as before.
NEW = {"x": np.array([0.0, 1.0]), "group": np.array([0, 3]), "ward": GROUP[::-1]}

SEED = 1


def hierarchical() -> pm.Model:
    with pm.Model() as model:
        x, group = pm.Data("x", X), pm.Data("group", GROUP)
        tau = pm.HalfNormal("tau")
        a = pm.Normal("a", sigma=tau, shape=GROUPS)
        b = pm.Normal("b")
        pm.Normal("y", a[group] + b * x, 0.5, observed=Y, shape=x.shape)
    return model


def correlated_slopes() -> pm.Model:
    with pm.Model() as model:
        x, group = pm.Data("x", X), pm.Data("group", GROUP)
        sd = pm.Exponential.dist(1.0, shape=2)
        cholesky, _, _ = pm.LKJCholeskyCov("cholesky", n=2, eta=2.0, sd_dist=sd)
        effects = pm.Normal("z", shape=(GROUPS, 2)) @ cholesky.T
        eta = effects[group, 0] + effects[group, 1] * x
        pm.Normal("y", eta, 0.5, observed=Y, shape=x.shape)
    return model


def missing_doses() -> pm.Model:
    with warnings.catch_warnings(), pm.Model() as model:
        warnings.simplefilter("ignore", pm.exceptions.ImputationWarning)
        ward = pm.Data("ward", GROUP)
        a = pm.Normal("a", shape=GROUPS)
        dose = pm.Normal("dose", observed=np.ma.masked_array(X, mask=np.arange(N) < 3))
        pm.Poisson("y", pt.exp(a[ward] + 0.1 * dose), observed=COUNT)
    return model


def ordered_logistic() -> pm.Model:
    with pm.Model() as model:
        x, b = pm.Data("x", X), pm.Normal("b")
        order = pm.distributions.transforms.ordered
        cuts = pm.Normal("cuts", [-1.0, 1.0], transform=order)
        pm.OrderedLogistic("y", eta=b * x, cutpoints=cuts, observed=LEVEL, shape=x.shape)
    return model


def mixture() -> pm.Model:
    with pm.Model() as model:
        x, w = pm.Data("x", X), pm.Dirichlet("w", np.ones(2))
        mu = pm.Normal("mu", [-1.0, 1.0])
        pm.NormalMixture("y", w, mu + x[:, None], 0.5, observed=Y, shape=x.shape)
    return model


def hurdle_by_group() -> pm.Model:
    with pm.Model() as model:
        group = pm.Data("group", GROUP)
        psi = pm.Beta("psi", 2, 2, shape=GROUPS)
        mu = pt.exp(pm.Normal("a", shape=GROUPS))
        pm.HurdlePoisson("y", psi[group], mu[group], observed=COUNT, shape=group.shape)
    return model


def negative_binomial() -> pm.Model:
    with pm.Model() as model:
        x, group = pm.Data("x", X), pm.Data("group", GROUP)
        eta = pm.Normal("a", shape=GROUPS)[group] + pm.Normal("b") * x
        alpha = pm.Exponential("alpha", 1.0)
        pm.NegativeBinomial("y", pt.exp(eta), alpha, observed=COUNT, shape=x.shape)
    return model


def censored() -> pm.Model:
    with pm.Model() as model:
        x = pm.Data("x", X)
        uncensored = pm.Normal.dist(pm.Normal("b") * x, pm.HalfNormal("sigma"))
        pm.Censored("y", uncensored, -1.0, 1.0, observed=Y.clip(-1, 1), shape=x.shape)
    return model


def random_walk() -> pm.Model:
    with pm.Model() as model:
        group = pm.Data("group", GROUP)
        start = pm.Normal.dist(0.0, 1.0)
        level = pm.GaussianRandomWalk("level", 0.0, 0.3, init_dist=start, steps=GROUPS - 1)
        pm.StudentT("y", 4.0, mu=level[group], sigma=0.5, observed=Y, shape=group.shape)
    return model


def crossed_effects_that_sum_to_zero() -> pm.Model:
    coords = {"ward": range(GROUPS), "answer": range(3)}
    with pm.Model(coords=coords) as model:
        x, group = pm.Data("x", X), pm.Data("group", GROUP)
        a = pm.ZeroSumNormal("a", dims=("ward", "answer"), n_zerosum_axes=1)
        b = pm.ZeroSumNormal("b", dims="answer")
        eta = a[group] + b * x[:, None]
        pm.Categorical("y", logit_p=eta, observed=LEVEL, shape=x.shape)
    return model


MODELS = [
    hierarchical,
    correlated_slopes,
    missing_doses,
    ordered_logistic,
    mixture,
    hurdle_by_group,
    negative_binomial,
    censored,
    random_walk,
    crossed_effects_that_sum_to_zero,
]


def drawn(model: pm.Model, **options: Mode) -> dict[str, np.ndarray]:
    """Return draws of the prior and the prior predictive, and of :func:`pm.draw`."""
    found = pm.sample_prior_predictive(20, model, random_seed=SEED, compile_kwargs=options)
    groups = found.prior, found.prior_predictive
    draws = {name: values.to_numpy() for group in groups for name, values in group.items()}
    variables = [*model.free_RVs, *model.observed_RVs]
    single = pm.draw(variables, 3, random_seed=SEED, **options)
    return draws | {f"draw of {x.name}": draw for x, draw in zip(variables, single, strict=True)}


def drawn_by_numpy(model: pm.Model) -> dict[str, np.ndarray]:
    """Return the same with the plugin off, Op by Op: Numba and C take a minute for an LKJ prior."""
    with disabled():
        return drawn(model, mode=PYTHON)


@pytest.fixture
def said(
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    recwarn: pytest.WarningsRecorder,
) -> Callable[[], list[str]]:
    """Return a function that tells what a user has read since it was last called: warnings, log records, standard error."""
    caplog.set_level(logging.WARNING, logger="pymc")

    def so_far() -> list[str]:
        records = [record.getMessage() for record in caplog.records]
        found = [*(str(warning.message) for warning in recwarn), *records]
        caplog.clear()
        recwarn.clear()
        return found + capfd.readouterr().err.splitlines()

    return so_far


def loo(idata: DataTree) -> float:
    """Return the expected log predictive density; few draws of few rows may warn of heavy tails."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")  # not once for each place
        return float(az.loo(idata, var_name="y").elpd)


@pytest.mark.parametrize("build", MODELS)
def test_workflow_agrees_from_prior_to_predictions(build, said):
    model = build()
    on, off = drawn(model), drawn_by_numpy(model)
    assert on.keys() == off.keys()
    for name, expected in off.items():
        np.testing.assert_allclose(on[name], expected, rtol=1e-9, err_msg=name)

    idata = pm.sample(
        100,
        tune=100,
        chains=1,
        model=model,
        nuts_sampler="nutpie",
        random_seed=SEED,
        progressbar=False,
        compute_convergence_checks=False,
        compile_kwargs=compile_kwargs(),
    )
    pm.compute_log_likelihood(idata, model=model, progressbar=False)
    assert idata.log_likelihood["y"].shape == (1, 100, N)
    assert np.isfinite(idata.log_likelihood["y"]).all()
    assert said() == []
    with disabled():
        off = loo(idata)
    said_off = said()
    assert loo(idata) == off
    assert said() == said_off

    new = {name: value for name, value in NEW.items() if name in model}
    with model:
        pm.set_data(new)
        found = pm.sample_posterior_predictive(
            idata, predictions=True, random_seed=SEED, progressbar=False
        )
    n_rows = len(next(iter(new.values())))
    assert found.predictions["y"].shape == (1, 100, n_rows)
    assert np.isfinite(found.predictions["y"]).all()
    assert said() == []
