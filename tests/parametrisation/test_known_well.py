"""Which effects are placed well as they are written, and that these models are compiled as written."""

import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.model.transform.optimization import freeze_dims_and_data

import pymc_fastlogp
from pymc_fastlogp.parametrisation import known_well
from pymc_fastlogp.parametrisation.known_well import are_known_well

GROUPS = 30


def simulated(rows=6000, groups=GROUPS):
    rng = np.random.default_rng(0)
    group = np.concatenate([np.arange(groups), rng.integers(groups, size=rows - groups)])
    x = rng.normal(size=rows)
    a, b = rng.normal(1, 0.5, groups), rng.normal(-1, 0.5, groups)
    return group, x, rng.normal(a[group] + b[group] * x, 0.7)


def model_of(likelihood, rows=6000, groups=GROUPS, centred=True):
    group, x, y = simulated(rows, groups)
    with pm.Model() as model:
        mu_a, mu_b = pm.Normal("mu_a"), pm.Normal("mu_b")
        sigma_a, sigma_b = pm.HalfNormal("sigma_a"), pm.HalfNormal("sigma_b")
        sigma = pm.HalfNormal("sigma")
        a = pm.Normal("a", mu_a, sigma_a, shape=groups)
        if centred:
            b = pm.Normal("b", mu_b, sigma_b, shape=groups)
        else:
            b = mu_b + sigma_b * pm.Normal("b", shape=groups)
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


def is_known_well(model):
    return are_known_well(freeze_dims_and_data(model), ["a", "b"])


@pytest.mark.parametrize("likelihood", [slopes, offset, by_product])
def test_many_rows_of_a_gaussian_likelihood_know_effects_well(likelihood):
    assert is_known_well(model_of(likelihood))


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
def test_what_is_no_such_likelihood_is_left_to_the_pilot(likelihood):
    assert not is_known_well(model_of(likelihood))


def test_few_rows_few_groups_and_effects_that_are_not_centred_are_left_to_the_pilot():
    assert not is_known_well(model_of(slopes, rows=300))
    assert not is_known_well(model_of(slopes, rows=GROUPS))
    assert not is_known_well(model_of(slopes, groups=known_well.LEAST_GROUPS - 1))
    assert not is_known_well(model_of(slopes, centred=False))


def test_rows_are_those_that_the_model_was_made_of():
    model = freeze_dims_and_data(model_of(offset))
    group, x, y = simulated()
    rows = known_well._rows_of(model, [model["a"], model["b"]])
    np.testing.assert_array_equal(rows.group, group)
    np.testing.assert_allclose(rows.covariates, [np.ones_like(x), x], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(rows.response, y, rtol=1e-9, atol=1e-12)


def test_the_ratio_is_that_of_least_squares_group_by_group():
    group, x, y = simulated(600)
    rows = known_well._Rows(y, np.array([np.ones_like(x), x]), group)
    estimates, inverses, squares = [], [], 0.0
    for g in range(GROUPS):
        design = np.column_stack([np.ones((group == g).sum()), x[group == g]])
        found, left, *_ = np.linalg.lstsq(design, y[group == g])
        estimates.append(found)
        inverses.append(np.diag(np.linalg.inv(design.T @ design)))
        squares += left[0]
    uncertain = squares / (len(y) - 2 * GROUPS) * np.array(inverses)
    between = np.var(estimates, axis=0, ddof=1) - uncertain.mean(0)
    expected = (between / uncertain).min()
    np.testing.assert_allclose(known_well._least_ratio(rows, GROUPS), expected, rtol=1e-9)


def test_such_a_model_is_sampled_as_it_is_written(caplog):
    model = model_of(slopes)
    with caplog.at_level(logging.INFO, logger="pymc_fastlogp"):
        new = pymc_fastlogp.parametrise(model)
    assert "known well by its rows" in caplog.text
    assert [new.rvs_to_values[x].name for x in new.free_RVs] == [
        model.rvs_to_values[x].name for x in model.free_RVs
    ]
    written = pymc_fastlogp.compile_pymc_model(model)
    parametrised = pymc_fastlogp.compile_pymc_model(model, parametrise=True)
    point = written.initial_point_func(1)
    assert parametrised.logp_dlogp(point)[0] == written.logp_dlogp(point)[0]
