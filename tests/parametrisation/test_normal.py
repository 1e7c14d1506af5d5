"""The change of variables is exact for any site: logp as written at the mapped point, and the logarithm of the Jacobian."""

import mpmath
import numpy as np
import pymc as pm
import pytest

from pymc_fastlogp.parametrisation.model import found_in, with_sites
from pymc_fastlogp.parametrisation.sites import LARGEST, Site

RNG = np.random.default_rng(18)
GROUP = RNG.integers(0, 4, 30)
X = RNG.normal(size=30)
Y = RNG.normal(size=30)
EVERYWHERE = np.array([0.0, 1e-12, 1.0, 1e12])


def centred() -> pm.Model:
    with pm.Model() as model:
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        a = pm.Normal("a", mu, tau, shape=4)
        pm.Normal("y", a[GROUP], 0.5, observed=Y)
    return model


def non_centred() -> pm.Model:
    with pm.Model() as model:
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        raw = pm.Normal("raw", shape=4)
        pm.Normal("y", (mu + tau * raw)[GROUP], 0.5, observed=Y)
    return model


def pair() -> pm.Model:
    with pm.Model(coords={"g": range(4)}) as model:
        tau = pm.HalfNormal("tau", shape=2)
        a = pm.Normal("a", 1.0, tau[0], dims="g")
        raw = pm.Normal("raw", dims="g")
        b = pm.Deterministic("b", tau[1] * raw, dims="g")
        pm.Normal("y", a[GROUP] + b[GROUP] * X, 0.5, observed=Y)
    return model


def nested() -> pm.Model:
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", shape=2)
        top = pm.Normal("top", 0, sigma[0], shape=2)
        a = pm.Normal("a", top[[0, 0, 1, 1]], sigma[1], shape=4)
        pm.Normal("y", a[GROUP], 0.5, observed=Y)
    return model


MODELS = [centred, non_centred, pair, nested]


def sites_of(model: pm.Model, rng: np.random.Generator, scale: np.ndarray) -> dict:
    """Return sites for all effects, random positive semidefinite ones of any size."""
    sites = {}
    for names in found_in(model).bundles:
        k, shape = len(names), model[names[0]].eval().shape
        root = rng.normal(size=(k, k, *shape)) * np.sqrt(rng.choice(scale, size=shape))
        information = np.einsum("ik...,jk...->ij...", root, root)
        sites[names] = Site(information, rng.normal(size=(k, *shape)) * rng.choice(scale)).guarded()
    return sites


def points(model: pm.Model, new: pm.Model, rng: np.random.Generator):
    """Return a point of the new model, and that of the model as written."""
    point = {x.name: rng.normal(size=x.eval().shape if False else new.initial_point()[x.name].shape) for x in new.value_vars}
    rvs = new.unobserved_value_vars
    return point, rvs


@pytest.mark.parametrize("scale", [np.array([1.0]), EVERYWHERE[:2], EVERYWHERE], ids=["one", "none", "all"])
@pytest.mark.parametrize("make", MODELS)
def test_logp_is_that_of_the_model_as_written_and_the_jacobian(make, scale):
    model = make()
    new = with_sites(model, sites_of(model, np.random.default_rng(1), scale)).model
    old_names = [model.rvs_to_values[rv].name for rv in model.free_RVs]
    mapped = new.compile_fn(
        new.replace_rvs_by_values([new[rv.name] for rv in model.free_RVs]), point_fn=True, on_unused_input="ignore"
    )
    sites = {rv.name for rv in new.free_RVs if type(new.rvs_to_transforms[rv]).__name__ == "SiteTransform"}
    jacobian = sum(
        new.rvs_to_transforms[rv].log_jac_det(new.rvs_to_values[rv], *rv.owner.inputs).sum()
        for rv in new.free_RVs
        if rv.name in sites
    )
    log_jacobian = new.compile_fn(new.replace_rvs_by_values([jacobian]), point_fn=True, on_unused_input="ignore")
    logp, old_logp = new.compile_logp(), model.compile_logp()
    start = new.initial_point()
    for _ in range(5):
        point = {name: RNG.normal(size=x.shape) for name, x in start.items()}
        values = dict(zip([rv.name for rv in model.free_RVs], mapped(point), strict=True))
        old = {}
        for rv, name in zip(model.free_RVs, old_names, strict=True):
            transform = model.rvs_to_transforms[rv]
            old[name] = values[rv.name] if transform is None else transform.forward(values[rv.name]).eval()
        expected = old_logp(old) + log_jacobian(point)[0]
        np.testing.assert_allclose(logp(point), expected, rtol=1e-9)
