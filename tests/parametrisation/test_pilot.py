"""The sites that a pilot finds, and the guard against bad ones."""

import numpy as np
import nutpie
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import ZeroSumTransform

import pymc_fastlogp
from pymc_fastlogp.parametrisation.pilot import pilot_of
from pymc_fastlogp.parametrisation.sites import LARGEST, Site
from tests.parametrisation import models
from tests.parametrisation.models import GROUP, GROUPS, X, Y

VARIANCE = 0.25


def sites_of(model: pm.Model) -> dict:
    pilot = pilot_of(model, lambda x: pymc_fastlogp.compile_pymc_model(x, freeze_model=False))
    return pilot.sites


def sums(values: np.ndarray) -> np.ndarray:
    return np.bincount(GROUP, values, minlength=GROUPS) / VARIANCE


def test_sites_of_a_gaussian_likelihood_are_its_sufficient_statistics():
    [site] = sites_of(models.centred()).values()
    np.testing.assert_allclose(site.information[0, 0], sums(np.ones_like(Y)), rtol=1e-6)
    np.testing.assert_allclose(site.gradient[0], sums(Y), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("make", [models.pair, *models.CORRELATED], ids=lambda x: x.__name__)
def test_sites_of_intercepts_and_slopes_are_matrices(make):
    [(names, site)] = sites_of(make()).items()
    expected = [[sums(np.ones_like(Y)), sums(X)], [sums(X), sums(X**2)]]
    in_order = [0, 1] if len(names) == 1 or names == ("a", "raw") else [1, 0]
    information = site.information[in_order][:, in_order]
    np.testing.assert_allclose(information, expected, rtol=1e-5, atol=1e-5)
    gradient = site.gradient[in_order]
    np.testing.assert_allclose(gradient, [sums(Y), sums(X * Y)], rtol=1e-5, atol=1e-5)


def test_sites_of_effects_that_sum_to_zero_are_those_of_the_entries_that_remain():
    [site] = sites_of(models.zero_sum()).values()
    of_groups = np.diag(sums(np.ones_like(Y)))
    extended = ZeroSumTransform([-1]).backward(pt.eye(GROUPS - 1)).eval().T
    information = np.diag(extended.T @ of_groups @ extended)
    np.testing.assert_allclose(site.information[0, 0], information, rtol=1e-6)
    assert not site.slopes


def test_groups_of_very_different_sizes_that_sum_to_zero_take_no_longer_ways():
    group = np.repeat(np.arange(10), [10] * 9 + [400])
    rng = np.random.default_rng(3)
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfNormal("tau")
        a = pm.ZeroSumNormal("a", tau, shape=10)
        y = rng.normal(size=10)[group] + rng.normal(size=len(group))
        pm.Normal("y", mu + a[group], 1, observed=y)
    options = {"draws": 400, "tune": 600, "chains": 2, "cores": 1, "seed": 1, "progress_bar": False}
    steps = []
    for parametrise in (False, True):
        compiled = pymc_fastlogp.compile_pymc_model(model, parametrise=parametrise)
        steps.append(float(nutpie.sample(compiled, **options).sample_stats["n_steps"].mean()))
    assert steps[1] < 1.5 * steps[0], steps


def test_gradients_of_sites_depend_on_coefficients():
    [site] = sites_of(models.with_coefficients()).values()
    information = site.information[0, 0]
    assert (information > 0).all()
    np.testing.assert_allclose(site.slopes["one"][0, :, 0], information, rtol=1e-4)


def test_sites_are_the_same_each_time():
    one, other = (sites_of(models.non_centred()) for _ in range(2))
    for names, site in one.items():
        np.testing.assert_array_equal(site.information, other[names].information)
        np.testing.assert_array_equal(site.gradient, other[names].gradient)


def test_a_guard_makes_any_site_finite_and_positive():
    rng = np.random.default_rng(0)
    information = rng.normal(size=(2, 2, 6)) * 10.0 ** np.array([0, 3, 20, 200, 0, 0])
    gradient = rng.normal(size=(2, 6))
    information[0, 0, 4], gradient[1, 5] = np.nan, np.inf
    slopes = {"x": np.full((2, 6, 1), np.nan)}
    site = Site(information, gradient, slopes).guarded()
    values = np.linalg.eigvalsh(np.moveaxis(site.information, -1, 0))
    assert (values >= -1e-9 * np.abs(values).max(1, keepdims=True)).all()
    assert (values <= LARGEST * (1 + 1e-9)).all()
    assert not site.information[..., 4:].any()
    assert not site.gradient[:, 4:].any()
    assert not site.slopes["x"].any()


def test_a_good_site_is_left_as_it_is_by_the_guard():
    site = Site(np.eye(2)[:, :, None] * [0.0, 1.0, 1e6], np.ones((2, 3)))
    np.testing.assert_array_equal(site.guarded().information, site.information)
    np.testing.assert_array_equal(site.guarded().gradient, site.gradient)
