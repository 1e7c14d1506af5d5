"""Effects that their rows identify well are sampled centered."""

import logging
from functools import partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.model.transform.optimization import freeze_dims_and_data
from pytensor.graph.traversal import explicit_graph_inputs
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Dot

import pymc_fastlogp
from pymc_fastlogp.reparametrization import well_identified
from pymc_fastlogp.reparametrization.model_with_sites import find_effects, with_sites
from pymc_fastlogp.reparametrization.sites import Site
from pymc_fastlogp.reparametrization.well_identified import centered_if_well_identified
from tests.reparametrization.test_as_written import jacobian, values_as_written
from tests.reparametrization.test_exact import function
from tests.rewrites.conftest import nodes_of, pregrad

GROUPS = 30


def simulated(rows=6000, groups=GROUPS):
    rng = np.random.default_rng(0)
    group = np.concatenate([np.arange(groups), rng.integers(groups, size=rows - groups)])
    x = rng.normal(size=rows)
    a, b = rng.normal(1, 0.5, groups), rng.normal(-1, 0.5, groups)
    return group, x, rng.normal(a[group] + b[group] * x, 0.7)


def centered(name, mu, sigma, groups):
    return pm.Normal(name, mu, sigma, shape=groups)


def non_centered(name, mu, sigma, groups):
    return mu + sigma * pm.Normal(name, shape=groups)


def model_of(likelihood, rows=6000, groups=GROUPS, written=(centered, centered)):
    group, x, y = simulated(rows, groups)
    with pm.Model() as model:
        mu_a, mu_b = pm.Normal("mu_a"), pm.Normal("mu_b")
        sigma_a, sigma_b = pm.HalfNormal("sigma_a"), pm.HalfNormal("sigma_b")
        sigma = pm.HalfNormal("sigma")
        a = written[0]("a", mu_a, sigma_a, groups)
        b = written[1]("b", mu_b, sigma_b, groups)
        likelihood(a, b, group, x, y, sigma)
    return model


def slopes(a, b, group, x, y, sigma):
    pm.Normal("y", a[group] + b[group] * x, sigma, observed=y)


def offset(a, b, group, x, y, sigma):
    pm.Normal("y", 3.0 * x + a[group] + b[group] * x, 2.0, observed=y + 3.0 * x)


def by_product(a, b, group, x, y, sigma):
    weights = np.zeros((len(y), GROUPS))
    weights[np.arange(len(y)), group] = 1.0
    pm.Normal("y", pt.dot(weights, a) + pt.dot(weights * x[:, None], b), sigma, observed=y)


def coefficient(a, b, group, x, y, sigma):
    pm.Normal("y", a[group] + b[group] * x + pm.Normal("c") * x**2, sigma, observed=y)


def curved(a, b, group, x, y, sigma):
    pm.Normal("y", a[group] + pt.sqr(b[group]) * x, sigma, observed=y)


def two_groups_a_row(a, b, group, x, y, sigma):
    mean = a[group] + 0.5 * a[(group + 1) % GROUPS] + b[group] * x
    pm.Normal("y", mean, sigma, observed=y)


def other_family(a, b, group, x, y, sigma):
    pm.StudentT("y", nu=5, mu=a[group] + b[group] * x, sigma=sigma, observed=y)


def deviation_by_group(a, b, group, x, y, sigma):
    pm.Normal("y", a[group] + b[group] * x, pt.exp(b[group]), observed=y)


def two_likelihoods(a, b, group, x, y, sigma):
    slopes(a, b, group, x, y, sigma)
    pm.Normal("more", a, sigma, observed=np.zeros(GROUPS))


def potential(a, b, group, x, y, sigma):
    slopes(a, b, group, x, y, sigma)
    pm.Potential("more", -pt.sqr(a).sum())


def unknown_in_one_group(a, b, group, x, y, sigma):
    pm.Normal("y", a[group] + b[group] * np.where(group == 3, 0.0, x), sigma, observed=y)


def is_well_identified(model):
    frozen = freeze_dims_and_data(model)
    return centered_if_well_identified(frozen, find_effects(frozen)) is not None


WAYS = [(centered, centered), (centered, non_centered), (non_centered, non_centered)]


@pytest.mark.parametrize("written", WAYS)
@pytest.mark.parametrize("likelihood", [slopes, offset, by_product])
def test_effects_with_many_gaussian_rows_are_well_identified(likelihood, written):
    assert is_well_identified(model_of(likelihood, written=written))


@pytest.mark.parametrize(
    "likelihood",
    [
        coefficient,
        curved,
        two_groups_a_row,
        other_family,
        deviation_by_group,
        two_likelihoods,
        potential,
        unknown_in_one_group,
    ],
)
@pytest.mark.parametrize("written", WAYS)
def test_other_likelihoods_are_left_to_the_pilot(likelihood, written):
    assert not is_well_identified(model_of(likelihood, written=written))


def test_few_rows_and_few_groups_are_left_to_the_pilot():
    assert is_well_identified(model_of(slopes, rows=600))
    assert not is_well_identified(model_of(slopes, rows=100))
    assert not is_well_identified(model_of(slopes, rows=GROUPS))
    assert not is_well_identified(model_of(slopes, groups=well_identified.MIN_GROUPS - 1))


def mean_in_each_row(name, mu, sigma, groups):
    return sigma * pm.Normal(name, shape=groups)


def mean_by_group(name, mu, sigma, groups):
    return mu + pm.Normal("gamma") * np.arange(groups) + sigma * pm.Normal(name, shape=groups)


def scale_by_group(name, mu, sigma, groups):
    return mu + sigma * np.linspace(1, 2, groups) * pm.Normal(name, shape=groups)


def used_as_written(a, b, group, x, y, sigma):
    raw = pm.modelcontext(None)["a"]
    pm.Normal("y", a[group] + (b + 0.01 * raw)[group] * x, sigma, observed=y)


@pytest.mark.parametrize("way", [mean_by_group, scale_by_group])
def test_effects_of_several_means_or_scales_are_left_to_the_pilot(way):
    assert not is_well_identified(model_of(slopes, written=(way, non_centered)))


def test_effects_combined_with_others_are_left_to_the_pilot():
    def with_mean(a, b, group, x, y, sigma):
        slopes(pm.modelcontext(None)["mu_a"] + a, b, group, x, y, sigma)

    def by_row(a, b, group, x, y, sigma):
        mu = pm.modelcontext(None)["mu_a"]
        pm.Normal("y", mu + a[group] + b[group] * x, sigma, observed=y)

    assert is_well_identified(model_of(with_mean, written=(mean_in_each_row, non_centered)))
    assert not is_well_identified(model_of(by_row, written=(mean_in_each_row, non_centered)))
    assert not is_well_identified(model_of(used_as_written, written=(non_centered, non_centered)))


@pytest.mark.parametrize("written", WAYS)
def test_rows_are_counted_before_compaction(written):
    model = freeze_dims_and_data(model_of(offset, written=written))
    group, x, y = simulated()
    site = Site.infinite(2, (GROUPS,))
    rows = well_identified._rows_of(
        with_sites(model, {("a", "b"): site}).model, ["a", "b"], (2, GROUPS)
    )
    np.testing.assert_array_equal(rows.group, group)
    np.testing.assert_allclose(rows.covariates, [np.ones_like(x), x], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(rows.response, y, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("is_correlated", [False, True])
def test_the_ratio_is_that_of_least_squares_group_by_group(is_correlated):
    group, x, y = simulated(600)
    rows = well_identified._Rows(y, np.array([np.ones_like(x), x]), group)
    estimates, inverses, squares = [], [], 0.0
    for g in range(GROUPS):
        design = np.column_stack([np.ones((group == g).sum()), x[group == g]])
        found, left, *_ = np.linalg.lstsq(design, y[group == g])
        estimates.append(found)
        inverses.append(np.linalg.inv(design.T @ design))
        squares += left[0]
    uncertain = squares / (len(y) - 2 * GROUPS) * np.array(inverses)
    between = np.cov(np.transpose(estimates)) - uncertain.mean(0)
    if not is_correlated:
        between *= np.eye(2)
    fractions = np.mean([np.linalg.inv(each + between) @ each for each in uncertain], axis=0)
    eigenvalues = np.linalg.eigvals(fractions)
    expected = [1 / eigenvalues.max() - 1, 1 / eigenvalues.min() - 1]
    found = well_identified._ratios(rows, GROUPS, is_correlated=is_correlated)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_the_ratio_of_groups_of_one_size_is_that_of_variances():
    group = np.repeat(np.arange(40), 10)
    y = np.random.default_rng(0).normal(np.sin(group), 0.5)
    means = y.reshape(40, 10).mean(1)
    uncertain = np.square(y - means[group]).sum() / (400 - 40) / 10
    rows = well_identified._Rows(y, np.ones((1, 400)), group)
    expected = (np.var(means, ddof=1) - uncertain) / uncertain
    found = well_identified._ratios(rows, 40)
    np.testing.assert_allclose(found, [expected, expected], rtol=1e-9)


@pytest.mark.parametrize("written", WAYS[1:])
def test_a_model_that_is_sampled_centered_is_the_same_model(written):
    model = model_of(slopes, rows=600, written=written)
    new = with_sites(model, {("a", "b"): Site.infinite(2, (GROUPS,))}).model
    assert_same_model(model, new)


def assert_same_model(model, new):
    """Assert that the log densities of two models differ by the log Jacobian of their value variables."""
    of_values = function(new, values_as_written(model, new))
    logp, density = function(new, [new.logp()]), function(model, [model.logp()])
    shapes = [x.shape for x in new.initial_point().values()]
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])

    def parts(x):
        pieces = zip(np.split(x, ends[:-1]), shapes, strict=True)
        return [part.reshape(shape) for part, shape in pieces]

    def flat(x):
        return np.concatenate([np.ravel(part) for part in of_values(*parts(x))])

    x = 0.7 * np.random.default_rng(2).normal(size=ends[-1])
    log_jacobian = np.linalg.slogdet(jacobian(flat, x))[1]
    expected = density(*of_values(*parts(x)))[0] + log_jacobian
    np.testing.assert_allclose(logp(*parts(x))[0], expected, rtol=1e-7)


def test_non_centered_effects_are_sampled_centered(caplog):
    model = model_of(slopes, written=(non_centered, non_centered))
    by_hand = model_of(slopes)
    with caplog.at_level(logging.INFO, logger="pymc_fastlogp"):
        new = pymc_fastlogp.reparametrize(model)
    assert "are sampled centered: each effect is well identified by its rows" in caplog.text
    names = ["mu_a", "mu_b", "sigma_a_log__", "sigma_b_log__", "sigma_log__"]
    assert [x.name for x in new.value_vars] == [*names, "a_centered__", "b_centered__"]
    compiled = pymc_fastlogp.compile_pymc_model(model, reparametrize=True)
    expected = pymc_fastlogp.compile_pymc_model(by_hand)
    assert_same_density(compiled, expected, np.random.default_rng(3).normal(size=expected.n_dim))


def assert_same_density(compiled, expected, x):
    """Assert that a compiled model has the density and the gradient of another, whose value variables have other names."""
    places, its_places = (value_places(each) for each in (compiled, expected))
    its_x = np.empty_like(x)
    for name, place in places.items():
        its_x[its_places[name.replace("_centered__", "")]] = x[place]
    (logp, gradient), (its_logp, its_gradient) = compiled.logp_dlogp(x), expected.logp_dlogp(its_x)
    np.testing.assert_allclose(logp, its_logp, rtol=1e-12)
    for name, place in places.items():
        its_own = its_gradient[its_places[name.replace("_centered__", "")]]
        np.testing.assert_allclose(gradient[place], its_own, rtol=1e-9, atol=1e-8)


def value_places(compiled):
    """Return where the value variables are in the unconstrained point, by name."""
    names, places, _ = compiled.shape_info
    return {name: x for name, x in zip(names, places, strict=True) if x.stop <= compiled.n_dim}


def test_draws_equal_those_of_the_model_centered_by_hand():
    options = {"draws": 50, "tune": 50, "chains": 1, "random_seed": 1, "progressbar": False}
    model = model_of(slopes, written=(non_centered, non_centered))
    idata = pymc_fastlogp.sample(model=model, reparametrize=True, **options)
    draws = idata.posterior
    assert set(draws.data_vars) == {x.name for x in model.free_RVs}
    group, x, y = simulated()
    a = draws["mu_a"].values[..., None] + draws["sigma_a"].values[..., None] * draws["a"].values
    least_squares = [
        np.linalg.lstsq(
            np.column_stack([np.ones((group == g).sum()), x[group == g]]), y[group == g]
        )[0]
        for g in range(GROUPS)
    ]
    # About 200 rows of deviation 0.7 each.
    np.testing.assert_allclose(a.mean((0, 1)), np.array(least_squares)[:, 0], atol=0.05)


def test_well_identified_centered_model_is_sampled_as_written(caplog):
    model = model_of(slopes)
    with caplog.at_level(logging.INFO, logger="pymc_fastlogp"):
        new = pymc_fastlogp.reparametrize(model)
    assert "well identified by its rows" in caplog.text
    assert [new.rvs_to_values[x].name for x in new.free_RVs] == [
        model.rvs_to_values[x].name for x in model.free_RVs
    ]
    written = pymc_fastlogp.compile_pymc_model(model)
    reparametrized = pymc_fastlogp.compile_pymc_model(model, reparametrize=True)
    point = written.initial_point_func(1)
    assert reparametrized.logp_dlogp(point)[0] == written.logp_dlogp(point)[0]


def correlated(write, rows=600, groups=GROUPS, likelihood=None):
    group, x, y = simulated(rows, groups)
    with pm.Model() as model:
        effects = write(groups)
        mean = effects[group, 0] + effects[group, 1] * x
        (likelihood or pm.Normal)("y", mu=mean, sigma=pm.HalfNormal("sigma"), observed=y)
    return model


def lkj():
    sd = pm.Exponential.dist(1.0, shape=2)
    return pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=sd)[0]


def rows_of_z(groups):
    return pm.Normal("mean", shape=2) + pm.Normal("z", shape=(groups, 2)) @ lkj().T


def columns_of_z(groups):
    return (lkj() @ pm.Normal("z", shape=(2, groups))).T + pm.Normal("mean", shape=2)


def without_mean(groups):
    return pm.Normal("z", shape=(groups, 2)) @ lkj().T


def with_factor_by_hand(groups):
    sd, rho = pm.HalfNormal("sd", shape=2), pm.Uniform("rho", -1, 1)
    one = pt.stack([pt.stack([1.0, 0.0]), pt.stack([rho, pt.sqrt(1 - rho**2)])])
    return pm.Normal("mean", shape=2) + pm.Normal("z", shape=(groups, 2)) @ (sd[:, None] * one).T


def mv_normal(groups):
    return pm.MvNormal("z", pm.Normal("mean", shape=2), chol=lkj(), shape=(groups, 2))


def with_any_matrix(groups):
    factor = pm.Normal("factor", shape=(2, 2))
    return pm.Normal("mean", shape=2) + pm.Normal("z", shape=(groups, 2)) @ factor.T


def with_mean_by_group(groups):
    slope = pm.Normal("mean", shape=2) * np.arange(groups)[:, None]
    return slope + pm.Normal("z", shape=(groups, 2)) @ lkj().T


CORRELATED = [rows_of_z, columns_of_z, without_mean, with_factor_by_hand]


@pytest.mark.parametrize("write", [*CORRELATED, mv_normal])
def test_correlated_effects_with_many_gaussian_rows_are_well_identified(write):
    assert is_well_identified(correlated(write))


def test_other_correlated_effects_are_left_to_the_pilot():
    assert not is_well_identified(correlated(rows_of_z, rows=100))
    assert not is_well_identified(correlated(rows_of_z, groups=well_identified.MIN_GROUPS - 1))
    assert not is_well_identified(correlated(rows_of_z, likelihood=partial(pm.StudentT, nu=5)))
    assert not is_well_identified(correlated(with_any_matrix))
    assert not is_well_identified(correlated(with_mean_by_group))


def centered_model(model):
    """Return a model with all effects centered."""
    found = find_effects(freeze_dims_and_data(model))
    sites = {
        names: Site.infinite(len(flat.gradient), flat.gradient.shape[1:])
        for names, flat in found.blocks.items()
    }
    return with_sites(model, sites).model


@pytest.mark.parametrize("write", CORRELATED)
def test_model_with_correlated_effects_sampled_centered_is_the_same_model(write):
    model = correlated(write)
    assert_same_model(model, centered_model(model))


@pytest.mark.parametrize("write", [rows_of_z, columns_of_z, without_mean])
def test_likelihood_of_correlated_effects_has_no_solve_and_no_product(write):
    new = centered_model(correlated(write))
    [mean] = new.replace_rvs_by_values([new["y"].owner.op.dist_params(new["y"].owner)[0]])
    mean = pregrad(mean, on=True)
    assert not nodes_of(mean, SolveTriangular)
    assert not nodes_of(mean, Dot)
    assert {x.name for x in explicit_graph_inputs([mean])} == {"z_centered__"}


def test_correlated_effects_sampled_centered_have_the_density_of_the_model_centered_by_hand(caplog):
    with caplog.at_level(logging.INFO, logger="pymc_fastlogp"):
        compiled = pymc_fastlogp.compile_pymc_model(correlated(rows_of_z), reparametrize=True)
    assert "z are sampled centered: each effect is well identified by its rows" in caplog.text
    by_hand = pymc_fastlogp.compile_pymc_model(correlated(mv_normal))
    assert_same_density(compiled, by_hand, np.random.default_rng(3).normal(size=by_hand.n_dim))
