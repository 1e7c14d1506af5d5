"""The sites that a pilot finds, and the guard against bad ones."""

import numpy as np
import nutpie
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import ZeroSumTransform
from threadpoolctl import ThreadpoolController

import pymc_fastlogp
from pymc_fastlogp.reparametrization.crossed import consistent_subset
from pymc_fastlogp.reparametrization.posterior_mode import find_mode
from pymc_fastlogp.reparametrization.selection import select_parametrization
from pymc_fastlogp.reparametrization.sites import MAX_INFORMATION, Site
from tests.reparametrization import as_written, models
from tests.reparametrization.models import GROUP, GROUPS, X, Y

VARIANCE = 0.25


def compiled_with_sites(model: pm.Model):
    return pymc_fastlogp.compile_pymc_model(model, freeze_model=False)


def sites_of(model: pm.Model) -> dict:
    return select_parametrization(model, compiled_with_sites).sites


def sums(values: np.ndarray) -> np.ndarray:
    return np.bincount(GROUP, values, minlength=GROUPS) / VARIANCE


def test_sites_of_a_gaussian_likelihood_are_its_sufficient_statistics():
    [site] = sites_of(models.centered()).values()
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
    for reparametrize in (False, True):
        compiled = pymc_fastlogp.compile_pymc_model(model, reparametrize=reparametrize)
        steps.append(float(nutpie.sample(compiled, **options).sample_stats["n_steps"].mean()))
    assert steps[1] < 1.5 * steps[0], steps


def test_gradients_of_sites_depend_on_coefficients():
    [site] = sites_of(models.with_coefficients()).values()
    information = site.information[0, 0]
    assert (information > 0).all()
    np.testing.assert_allclose(site.slopes["one"][0, :, 0], information, rtol=1e-4)


def test_sites_are_the_same_each_time():
    one, other = (sites_of(models.non_centered()) for _ in range(2))
    for names, site in one.items():
        np.testing.assert_array_equal(site.information, other[names].information)
        np.testing.assert_array_equal(site.gradient, other[names].gradient)


def test_a_guard_makes_any_site_finite_and_positive():
    rng = np.random.default_rng(0)
    information = rng.normal(size=(2, 2, 6)) * 10.0 ** np.array([0, 3, 20, 200, 0, 0])
    gradient = rng.normal(size=(2, 6))
    information[0, 0, 4], gradient[1, 5] = np.nan, np.inf
    slopes = {"x": np.full((2, 6, 1), np.nan)}
    site = Site(information, gradient, slopes).projected()
    values = np.linalg.eigvalsh(np.moveaxis(site.information, -1, 0))
    assert (values >= -1e-9 * np.abs(values).max(1, keepdims=True)).all()
    assert (values <= MAX_INFORMATION * (1 + 1e-9)).all()
    assert not site.information[..., 4:].any()
    assert not site.gradient[:, 4:].any()
    assert not site.slopes["x"].any()


def test_a_good_site_is_left_as_it_is_by_the_guard():
    site = Site(np.eye(2)[:, :, None] * [0.0, 1.0, 1e6], np.ones((2, 3)))
    np.testing.assert_array_equal(site.projected().information, site.information)
    np.testing.assert_array_equal(site.projected().gradient, site.gradient)


def balanced(sizes: tuple[int, ...], sign: float = 1.0) -> pm.Model:
    """A Gaussian likelihood in which each combination of three factors is seen once."""
    index = [x.ravel() for x in np.meshgrid(*map(np.arange, sizes), indexing="ij")]
    y = np.random.default_rng(1).normal(size=index[0].size)
    with pm.Model() as model:
        sigma, beta, mu = pm.HalfNormal("sigma", shape=3), pm.Normal("beta"), pm.Normal("mu")
        a = pm.Normal("a", mu, sigma[0], shape=sizes[0])
        b = pm.Normal("b", 0, sigma[1], shape=sizes[1])
        c = sigma[2] * pm.Normal("c", shape=sizes[2])
        pm.Normal("y", beta + a[index[0]] + sign * b[index[1]] + c[index[2]], 0.5, observed=y)
    return model


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_crossed_effects_of_a_balanced_design_are_standard_normal_whatever_else_is(sign):
    compiled = pymc_fastlogp.compile_pymc_model(balanced((4, 3, 2), sign), reparametrize=True)
    places = dict(zip(*compiled.shape_info[:2], strict=True))
    rng = np.random.default_rng(3)
    for _ in range(5):
        x = rng.normal(0, 2, size=compiled.n_dim)
        _, gradient = compiled.logp_dlogp(x)
        for name in ("a_site__", "b_site__", "c_site__"):
            np.testing.assert_allclose(gradient[places[name]], -x[places[name]], rtol=1e-6)


def test_signs_of_crossed_effects_are_those_of_the_rows():
    pilot = select_parametrization(balanced((4, 3, 2), -1.0), compiled_with_sites)
    assert {name: site.sign for (name,), site in pilot.sites.items()} == {"a": 1, "b": -1, "c": 1}


@pytest.mark.parametrize("n", [2, 5], ids=["the smallest factor", "the largest"])
def test_effects_of_other_rows_are_not_crossed(n):
    item = models.ITEM
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", shape=3)
        a = pm.Normal("a", 0, sigma[0], shape=GROUPS)
        b = pm.Normal("b", 0, sigma[1], shape=3)
        c = pm.Normal("c", 0, sigma[2], shape=n)
        pm.Normal("y", a[GROUP] + b[item], 0.5, observed=Y)
        pm.Normal("other", c[np.arange(10) % n], 0.5, observed=Y[:10])
    pilot = select_parametrization(model, compiled_with_sites)
    assert {name: site.sign for (name,), site in pilot.sites.items()} == {"a": 1, "b": 1, "c": 0}
    [alone] = [site for names, site in pilot.sites.items() if names == ("c",)]
    np.testing.assert_allclose(alone.information[0, 0], [40 / n] * n, rtol=1e-6)


def test_effects_of_a_slope_are_not_crossed_with_those_of_intercepts():
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", shape=2)
        a = pm.Normal("a", 0, sigma[0], shape=GROUPS)
        b = pm.Normal("b", 0, sigma[1], shape=3)
        pm.Normal("y", a[GROUP] + b[models.ITEM] * X, 0.5, observed=Y)
    pilot = select_parametrization(model, compiled_with_sites)
    assert [site.sign for site in pilot.sites.values()] == [0, 0]


def test_the_largest_set_of_factors_that_fit_each_other_is_kept():
    fits = np.ones((4, 4), dtype=bool)
    assert consistent_subset(fits) == [0, 1, 2, 3]
    fits[1, :] = fits[:, 1] = False
    assert consistent_subset(fits) == [0, 2, 3]
    assert len(consistent_subset(np.eye(3, dtype=bool))) == 1
    assert consistent_subset(np.zeros((2, 2), dtype=bool)) == []


def test_variables_whose_lengths_their_types_do_not_know_are_in_the_point():
    def shifted(mu, size):
        return pm.Normal.dist(mu, 1.0, size=size)

    with pm.Model() as model:
        b = pm.CustomDist("b", 0.0, dist=shifted, shape=GROUPS)
        a = pm.Normal("a", 0, pm.HalfNormal("tau"), shape=GROUPS)
        pm.Normal("y", a[GROUP] + b[GROUP] * X, 0.5, observed=Y)
    assert model.rvs_to_values[b].type.shape == (None,)
    assert any(names == ("a",) for names in sites_of(model))


@pytest.mark.parametrize(
    ("make", "is_coupled"),
    [
        (as_written.ridge, True),
        (as_written.random_walk, True),
        (as_written.reference_level, True),
        (as_written.several_likelihoods, False),
        (as_written.groups_without_rows, False),
        (as_written.one_group, False),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_entries_that_the_likelihood_does_not_know_apart_stay_as_they_are_written(make, is_coupled):
    pilot = select_parametrization(make(), compiled_with_sites)
    names = set() if pilot is None else pilot.effects
    assert names.isdisjoint({"beta", "raw", "b", "a"}) == is_coupled


def test_the_mode_is_found_by_one_thread():
    threads = []

    def density(x):
        libraries = ThreadpoolController().select(user_api="blas").info()
        threads.extend(each["num_threads"] for each in libraries)
        return float(-x @ x / 2), -x

    np.testing.assert_allclose(find_mode(density, np.ones(200), 10), 0, atol=1e-8)
    assert threads
    assert {*threads} == {1}
