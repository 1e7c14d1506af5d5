"""Other functions that PyMC derives from a model (Hessian, elementwise logp, MAP, ADVI, SMC) agree with the plugin off."""

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytest

import pymc_fastlogp
from pymc_fastlogp import disabled
from tests.faults.models import GROUP, GROUPS, OBSERVED, X, grouped

KINDS = ["normal", "poisson", "bernoulli"]
SEED = 1


def point_of(model: pm.Model) -> dict[str, np.ndarray]:
    """Return a point at which no parameter is zero."""
    return {name: value + 0.3 for name, value in model.initial_point().items()}


def on_and_off(compute: Callable) -> tuple:
    """Return what is computed with the plugin, and without it."""
    on = compute()
    with disabled():
        return on, compute()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_agree(kind):
    def compute():
        model = grouped(kind)
        return model.compile_d2logp()(point_of(model))

    on, off = on_and_off(compute)
    np.testing.assert_allclose(on, off, rtol=1e-9, atol=1e-9 * np.abs(off).max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("jacobian", [True, False])
def test_elementwise_logp_agrees(kind, jacobian):
    def compute():
        model = grouped(kind)
        return model.compile_logp(sum=False, jacobian=jacobian)(point_of(model))

    on, off = on_and_off(compute)
    assert [np.shape(each) for each in on] == [np.shape(each) for each in off]
    for found, expected in zip(on, off, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_posterior_modes_agree():
    """The model has a mode. A centered hierarchy has none: its density diverges as the scale goes to zero."""

    def compute():
        with pm.Model() as model:
            eta = pm.Normal("a", shape=GROUPS)[GROUP] + pm.Normal("b") * X
            pm.Poisson("y", pm.math.exp(eta), observed=OBSERVED["poisson"])
        return pm.find_MAP(model=model, progressbar=False)

    on, off = on_and_off(compute)
    assert on.keys() == off.keys()
    for name, expected in off.items():
        np.testing.assert_allclose(on[name], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["advi", "fullrank_advi"])
def test_variational_inference_agrees(method):
    def compute():
        with grouped("poisson"):
            found = pm.fit(200, method=method, random_seed=SEED, progressbar=False)
        return found.hist, found.mean.eval(), found.std.eval()

    for found, expected in zip(*on_and_off(compute), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_sequential_monte_carlo_agrees():
    def compute():
        options = {"chains": 1, "cores": 1, "random_seed": SEED, "progressbar": False}
        idata = pm.sample_smc(
            100, model=grouped("poisson"), compute_convergence_checks=False, **options
        )
        return idata.posterior

    on, off = on_and_off(compute)
    for name in ("a", "b", "sigma_a"):
        np.testing.assert_allclose(on[name], off[name], rtol=1e-6, atol=1e-8)


def test_eight_chains_do_not_disturb_each_other():
    def draws(cores):
        options = {"chains": 8, "cores": cores, "random_seed": SEED, "progressbar": False}
        model = grouped("poisson")
        return pymc_fastlogp.sample(30, tune=30, model=model, quiet=True, **options).posterior

    together, one_by_one = draws(8), draws(1)
    for name in ("a", "b", "sigma_a"):
        assert together[name].shape[:2] == (8, 30)
        np.testing.assert_array_equal(together[name], one_by_one[name])
