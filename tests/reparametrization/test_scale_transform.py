"""Scales of effects: which variables they are, and that their change of variables is exact, near zero too."""

import mpmath as mp
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_fastlogp
from pymc_fastlogp.reparametrization.model_with_sites import find_effects, with_sites
from pymc_fastlogp.reparametrization.scale_transform import scale_transform
from tests.reparametrization import models

SCALE = 2.5
PRIORS = {
    "half-normal": lambda name: pm.HalfNormal(name, SCALE),
    "exponential": lambda name: pm.Exponential(name, scale=SCALE),
    "half-Cauchy": lambda name: pm.HalfCauchy(name, SCALE),
    "half-Student": lambda name: pm.HalfStudentT(name, nu=3, sigma=SCALE),
}
POINTS = [-35.0, -5.5, -1.0, -1e-9, 0.0, 1e-9, 0.7, 3.0, 40.0]


def effects_of(prior, **kwargs) -> pm.Model:
    with pm.Model() as model:
        tau = prior("tau")
        pm.Normal("y", pm.Normal("a", 0, tau, shape=4), 1.0, observed=np.arange(4.0), **kwargs)
    return model


def sited(model: pm.Model) -> pm.Model:
    return with_sites(model, find_effects(model).blocks).model


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_there_and_back_and_the_jacobian(prior):
    model = sited(effects_of(prior))
    tau = model["tau"]
    assert model.rvs_to_transforms[tau] is scale_transform
    assert model.rvs_to_values[tau].name == "tau_scale__"
    v = pt.dscalar("v")
    x = scale_transform.backward(v, *tau.owner.inputs)
    back = scale_transform.forward(x, *tau.owner.inputs)
    jacobian = scale_transform.log_jac_det(v, *tau.owner.inputs)
    evaluate = pytensor.function([v], [x, back, jacobian, pt.grad(x, v)], mode="FAST_COMPILE")
    for point in POINTS:
        left = mp.mpf(min(point, 0.0))
        expected = SCALE * mp.exp(mp.mpf(point) - 1 - left**2 / 2)
        found, again, log_slope, slope = evaluate(point)
        # The exponent of 648 loses three digits.
        np.testing.assert_allclose(found, float(expected), rtol=1e-13)
        np.testing.assert_allclose(again, point, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(log_slope, float(mp.log(expected * (1 - left))), rtol=1e-13)
        np.testing.assert_allclose(slope, float(expected * (1 - left)), rtol=1e-12)


def test_the_density_ends_like_a_gaussian_on_both_sides():
    """With the logarithm it falls by the distance alone towards zero."""
    model = sited(effects_of(PRIORS["half-normal"]))
    logp = model.compile_logp(vars=[model["tau"]])
    point = {name: np.zeros(np.shape(x)) for name, x in model.initial_point().items()}
    at = [logp({**point, "tau_scale__": np.asarray(float(v))}) for v in (-6, -12, -24)]
    assert at[0] - at[1] > 0.9 * (12**2 - 6**2) / 2
    assert at[1] - at[2] > 0.9 * (24**2 - 12**2) / 2


def of_two_scales() -> pm.Model:
    """A scale of a scale, and one of a single effect of several."""
    with pm.Model() as model:
        top = pm.HalfNormal("top")
        tau = pm.HalfNormal("tau", top, shape=2)
        sigma = pm.HalfNormal("sigma")
        a = tau[0] * pm.Normal("a", shape=models.GROUPS)
        pm.Normal("y", a[models.GROUP], sigma, observed=models.Y)
    return model


@pytest.mark.parametrize(
    ("make", "scales"),
    [
        (lambda: effects_of(lambda name: pm.HalfNormal(name, 1.0)), {"tau"}),
        (of_two_scales, {"tau", "top"}),
        (models.correlated_centered, set()),
        (lambda: effects_of(lambda name: pm.LogNormal(name)), set()),
        (lambda: effects_of(lambda name: pm.InverseGamma(name, 2.0, 1.0)), set()),
        (lambda: effects_of(lambda name: pm.Uniform(name, 0.0, 2.0)), set()),
        (lambda: effects_of(lambda name: pm.HalfNormal(name, dtype="float32")), set()),
        (lambda: effects_of(lambda name: pm.HalfNormal(name, default_transform=None)), set()),
    ],
)
def test_which_variables_are_scales(make, scales):
    model = make()
    assert set(find_effects(model).scales) == scales
    left = {x.name for x in find_effects(model).unchanged}
    assert not left & scales
    new = sited(model)
    assert {x.name for x in new.free_RVs if new.rvs_to_transforms[x] is scale_transform} == scales


def test_a_model_without_effects_keeps_its_logarithms():
    with pm.Model() as model:
        pm.Normal("y", 0.0, pm.HalfNormal("sigma"), observed=np.arange(3.0))
    assert not find_effects(model).scales
    assert [x.name for x in pymc_fastlogp.reparametrize(model).value_vars] == ["sigma_log__"]


def test_chains_start_at_the_initial_value():
    model = sited(effects_of(lambda name: pm.HalfNormal(name, SCALE, initval=0.125)))
    start = model.initial_point()["tau_scale__"]
    x = scale_transform.backward(pt.as_tensor(start), *model["tau"].owner.inputs)
    np.testing.assert_allclose(x.eval(), 0.125, rtol=1e-14)


def test_explain_says_so():
    effects = pymc_fastlogp.explain(effects_of(PRIORS["half-normal"])).effects
    assert effects["tau"] == "reparametrize lets it come near zero: it is the scale of effects"


def test_a_posterior_near_zero_is_that_of_quadrature():
    """The data do not say that groups differ; with the logarithm, chains get stuck and miss the smallest scales."""
    group, y = np.arange(30) % 4, np.random.default_rng(0).normal(size=30)
    with pm.Model() as model:
        tau = pm.HalfStudentT("tau", nu=4, sigma=2.0)
        pm.Normal("y", pm.Normal("a", 0, tau, shape=4)[group], 1, observed=y)
    options = {"draws": 4000, "chains": 2, "random_seed": 1, "progressbar": False}
    idata = pymc_fastlogp.sample(model=model, reparametrize=True, **options)
    found = idata.posterior["tau"].to_numpy().ravel()
    n = np.bincount(group)
    x = np.linspace(1e-6, 30, 200_001)
    variances = x**2 + 1 / n[:, None]
    means = (np.bincount(group, y) / n)[:, None]
    logp = stats.t(4, scale=2).logpdf(x) - 0.5 * (np.log(variances) + means**2 / variances).sum(0)
    weights = np.exp(logp - logp.max())
    weights /= weights.sum()
    # Four standard errors of some 4 000 effective samples at least.
    error = 4 * np.sqrt((weights * x**2).sum() - (weights @ x) ** 2) / np.sqrt(4000)
    assert abs(found.mean() - weights @ x) < error
    below = x[np.searchsorted(np.cumsum(weights), 0.05)]
    assert abs((found < below).mean() - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 4000)
