"""Triangular factors in place of rows: the same sum of squares and gradient, for any offset and scale."""

from fractions import Fraction

import numpy as np
import pytest

from pymc_fastlogp.rewrites.gaussian.factor import factorized

L = np.longdouble
UNBALANCED = np.array([1, 1, 2, 3, 700, 5, 20_000, 64, 513])


@pytest.fixture
def rng():
    """Return a generator of each test's own, so that the data do not depend on the tests that run before."""
    return np.random.default_rng(0)


def design(rng, counts, *, x_offset=0.0, x_scale=1.0):
    n = counts.sum()
    return np.column_stack([np.ones(n), x_offset + x_scale * rng.normal(size=n)])


def products(triangle, low, deviation):
    """Return the triangle times deviations; products of the first row are exact, as in fused multiply-adds.

    Extended precision is not enough: products near 1e5 that cancel to order 1 would be rounded to 1e-14.
    """
    rows = np.einsum("njk,nk->nj", triangle, deviation)
    for row, *cell in zip(rows, triangle[:, 0], low, deviation, strict=True):
        exact = zip(*(map(Fraction, part) for part in cell), strict=True)
        row[0] = float(sum((high + low) * step for high, low, step in exact))
    return rows


def evaluated(factor, parameters):
    """Return the sum of squares, and half its gradient, at parameters of shape (n, k)."""
    k = parameters.shape[1]
    pivot = np.ones_like(parameters)
    if factor.pivot is not None:
        pivot[:, 0] = factor.pivot
    triangle = factor.triangle * np.triu(np.ones((k, k)))
    deviation = parameters - factor.center
    rows = pivot * products(triangle, factor.low, deviation) + factor.offset
    gradient = np.einsum("nj,njk->nk", rows * pivot, triangle)
    return (rows**2).sum() + (factor.rest**2).sum(), gradient


def by_rows(covariates, target, weights, counts, parameters):
    """Return the same from the rows, in extended precision, and the sizes of what is added up."""
    of_row = np.repeat(np.arange(len(counts)), counts)
    begin = np.cumsum(counts) - counts
    residual = weights * (target + (covariates.astype(L) * parameters[of_row]).sum(axis=1))
    terms = residual[:, None] * (weights[:, None] * covariates)
    return (residual**2).sum(), np.add.reduceat(terms, begin), np.add.reduceat(abs(terms), begin)


def assert_same(covariates, target, weights, counts, parameters):
    rows = np.column_stack([covariates, target])
    value, gradient = evaluated(factorized(rows.__getitem__, weights, counts), parameters)
    exact, exact_gradient, sizes = by_rows(covariates, target, weights, counts, parameters)
    assert abs(value - exact) <= 1e-12 * exact
    assert (abs(gradient - exact_gradient) <= 1e-10 * sizes).all()


@pytest.mark.parametrize("x_scale", [1.0, 1e-6, 1e6])
@pytest.mark.parametrize(("offset", "scale"), [(0, 1), (0, 1e-6), (0, 1e6), (1e6, 1), (-1e6, 1)])
def test_sum_of_squares_and_gradient(rng, offset, scale, x_scale):
    counts = UNBALANCED
    covariates = design(rng, counts, x_scale=x_scale)
    target = -offset + scale * rng.normal(size=counts.sum())
    parameters = np.column_stack([offset + scale * rng.normal(size=9), rng.normal(size=9) * scale])
    parameters[:, 1] /= x_scale
    assert_same(covariates, target, np.ones(1), counts, parameters)


def test_covariate_with_an_offset_keeps_digits(rng):
    counts = np.array([500, 20_000])
    covariates = design(rng, counts, x_offset=1e6)
    slope = np.array([0.3, -0.2])
    parameters = np.column_stack([-1e6 * slope + 0.1, slope])
    of_row = np.repeat([0, 1], counts)
    target = rng.normal(size=counts.sum()) - (covariates * parameters[of_row]).sum(axis=1)
    near = parameters + 1e-3 * rng.normal(size=(2, 2)) * [1, 1e-6]
    assert_same(covariates, target, np.ones(1), counts, near)


@pytest.mark.parametrize("at", ["fit", "zero slope", "half of the slope"])
@pytest.mark.parametrize("y_offset", [0.0, 1e6])
def test_a_covariate_with_an_offset_costs_no_digits(rng, at, y_offset):
    counts = np.array([500, 20_000])
    covariates = design(rng, counts, x_offset=1e6)
    slope = np.array([0.3, -0.2])
    of_row = np.repeat([0, 1], counts)
    target = -(y_offset + slope[of_row] * (covariates[:, 1] - 1e6) + rng.normal(size=of_row.size))
    slope = slope * {"fit": 1 + 1e-4, "zero slope": 0.0, "half of the slope": 0.5}[at]
    parameters = np.column_stack([y_offset - 1e6 * slope + 0.1, slope])

    factor = factorized(np.column_stack([covariates, target]).__getitem__, np.ones(1), counts)
    value, gradient = evaluated(factor, parameters)
    exact, exact_gradient, sizes = by_rows(covariates, target, np.ones(1), counts, parameters)
    assert abs(value - exact) <= 1e-14 * exact
    assert (abs(gradient - exact_gradient) <= 1e-14 * sizes).all()


def test_the_low_part_has_the_sign_of_the_share_and_completes_it(rng):
    counts = np.array([500, 20_000, 1, 700])
    covariates = design(rng, counts, x_offset=-1e6)
    covariates[-700:, 1] -= 1e3 * covariates[-700:, 1].round()
    means = [part[:, 1].astype(L).mean() for part in np.split(covariates, np.cumsum(counts)[:-1])]
    rows = np.column_stack([covariates, rng.normal(size=counts.sum())])
    factor = factorized(rows.__getitem__, np.ones(1), counts)
    share, low = factor.triangle[:, 0, 1], factor.low[:, 1]
    unit = factor.triangle[:, 0, 0]
    assert (np.sign(low) == np.sign(share)).all()
    assert (np.abs(low) <= np.spacing(np.abs(share))).all()
    np.testing.assert_allclose((share.astype(L) + low) / unit, means, rtol=1e-18)
    assert (factor.low[:, 0] == 0).all()


def test_a_covariate_without_an_offset_has_no_low_part(rng):
    counts = np.array([500, 20])
    rows = np.column_stack([design(rng, counts, x_offset=3.0), rng.normal(size=520)])
    assert (factorized(rows.__getitem__, np.ones(1), counts).low == 0).all()


def test_weights_of_very_different_size(rng):
    counts = UNBALANCED
    weights = 10.0 ** rng.uniform(-3, 3, size=counts.sum())
    covariates = design(rng, counts)
    target = rng.normal(size=counts.sum())
    assert_same(covariates, target, weights, counts, rng.normal(size=(9, 2)))


@pytest.mark.parametrize("value", [0.0, 1.0, 1e6])
def test_covariate_that_is_constant_in_a_cell(rng, value):
    counts = np.array([40, 1, 200])
    covariates = design(rng, counts)
    covariates[:40, 1] = value
    target = rng.normal(size=counts.sum())
    assert_same(covariates, target, np.ones(1), counts, rng.normal(size=(3, 2)))


@pytest.mark.parametrize("column", [0, 1])
def test_covariate_that_is_zero_everywhere(rng, column):
    counts = np.array([40, 1, 200])
    covariates = design(rng, counts)
    covariates[:, column] = 0
    target = rng.normal(size=counts.sum())
    assert_same(covariates, target, np.ones(1), counts, rng.normal(size=(3, 2)))


def test_target_norm_remains_without_covariates():
    target = np.array([3.0, 4.0, 1e6])
    factor = factorized(target[:, None].__getitem__, np.ones(1), np.array([2, 1]))
    np.testing.assert_allclose(factor.rest, [5.0, 1e6], rtol=1e-15)


def test_zero_weights_leave_nothing(rng):
    rows = np.column_stack([design(rng, np.array([4])), rng.normal(size=4)])
    factor = factorized(rows.__getitem__, np.zeros(1), np.array([4]))
    assert evaluated(factor, np.ones((1, 2)))[0] == 0


@pytest.mark.parametrize("n", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_cell_of_many_rows_keeps_digits(rng, n):
    counts = np.array([n])
    target = 1e6 + rng.normal(size=n)
    assert_same(design(rng, counts), target, np.ones(1), counts, np.array([[-1e6 + 1e-3, 1e-3]]))


@pytest.mark.parametrize("x", [[-1.0, 1.0], [2.0, 2.0], [-1.0, 3.0], [1e6, 1e6 + 1 / 3]])
@pytest.mark.parametrize("parameters", [(np.inf, 1.0), (1.0, np.inf), (-np.inf, 0.0)])
def test_one_infinite_parameter_gives_infinity_also_where_entries_cancel(rng, x, parameters):
    rows = np.column_stack([np.ones(4), np.tile(x, 2), rng.normal(size=4)])
    factor = factorized(rows.__getitem__, np.ones(1), np.array([4]))
    deviation = parameters - factor.center[0]
    first, second = factor.triangle[0]
    residuals = [(first * deviation).sum(), second[1] * deviation[1]]
    if factor.low.any():
        residuals[0] += factor.low[0, 1] * deviation[1]
    assert np.square(residuals).sum() == np.inf
