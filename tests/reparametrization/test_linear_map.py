"""The linear map from the curvature: exact for Gaussians, and refused for other posteriors."""

import numpy as np
import pymc as pm
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pymc_fastlogp
from pymc_fastlogp.compilation.nutpie_model import TransformedModel
from pymc_fastlogp.reparametrization.linear_map import LinearMap, linear_map
from pymc_fastlogp.reparametrization.linear_map_search import (
    MAX_MISMATCH,
    _find_map_at_mode,
    _mismatch,
    find_linear_map,
)
from tests.reparametrization import as_written


def found_of(precision: np.ndarray, *lengths: int) -> tuple[LinearMap | None, float]:
    """Return the map of a Gaussian whose variables have these lengths."""
    stops = np.cumsum(lengths)
    blocks = [np.arange(stop - n, stop) for stop, n in zip(stops, lengths, strict=True)]
    return linear_map(lambda x: -precision @ x, np.ones(len(precision)), blocks)


def matrix_of(found: LinearMap, n: int) -> np.ndarray:
    return np.array([found.forward(row) for row in np.eye(n)]).T


def precision_with(correlation: float, scales: list[float]) -> np.ndarray:
    """Return a precision with one correlation of all pairs."""
    n = len(scales)
    covariance = np.full((n, n), correlation) + (1 - correlation) * np.eye(n)
    return np.linalg.inv(covariance * np.outer(scales, scales))


@given(st.integers(0, 2**32), st.integers(2, 12))
def test_mapped_gaussian_is_standard_normal(seed, n):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n)) + 0.1 * np.eye(n)
    scales = np.exp(rng.normal(size=n) * 3)
    precision = (root @ root.T + 1e-4 * np.eye(n)) / np.outer(scales, scales)
    found, ratio = found_of(precision, n)
    unit = 1 / np.sqrt(np.diagonal(precision))
    curvatures = np.linalg.eigvalsh(precision * np.outer(unit, unit))
    np.testing.assert_allclose(ratio, curvatures[-1] / curvatures[0], rtol=1e-2)
    if found is None:
        assert ratio < 6
        return
    matrix = matrix_of(found, n)
    mapped = matrix.T @ precision @ matrix
    np.testing.assert_allclose(mapped, np.eye(n), atol=1e-4)


def test_uncorrelated_parameter_is_only_rescaled():
    precision = np.diag([1.0, 1.0, 4.0])
    precision[:2, :2] = precision_with(0.99, [1.0, 30.0])
    found, _ = found_of(precision, 1, 1, 1)
    matrix = matrix_of(found, 3)
    np.testing.assert_allclose(matrix[2], [0, 0, 0.5], atol=1e-8)
    np.testing.assert_allclose(matrix[:, 2], [0, 0, 0.5], atol=1e-8)


def test_many_dependents_follow_few_parameters():
    n, levels = 300, np.repeat([1.0, -1.0], 150)
    precision = np.diag([700.0, 1.0, *np.full(n, 2.0)])
    precision[0, 2:] = precision[2:, 0] = 2.0 * levels
    found, ratio = found_of(precision, 2, n)
    assert ratio == pytest.approx(7, rel=1e-6)
    assert (len(found.dependents), found.left.shape, found.right.shape) == (n, (2, 1), (1, n))
    matrix = matrix_of(found, n + 2)
    mapped = matrix.T @ precision @ matrix
    np.testing.assert_allclose(mapped, np.diag(np.diagonal(mapped)), atol=1e-5)
    np.testing.assert_allclose(matrix[2:, 0] / matrix[0, 0], -levels, rtol=1e-6)


def test_mutually_dependent_parameters_follow_nothing():
    n = 200
    precision = 3 * np.eye(n + 2) - np.eye(n + 2, k=1) - np.eye(n + 2, k=-1)
    precision[:2, :2] = precision_with(0.98, [1.0, 1.0])
    found, _ = found_of(precision, 2, n)
    assert (list(found.indices), len(found.dependents), found.right.shape) == ([0, 1], 0, (0, 0))


def test_inverse_map_restores_the_point():
    rng = np.random.default_rng(1)
    found = LinearMap(
        np.array([4, 1]),
        rng.normal(size=(2, 2)),
        np.array([0, 2, 5]),
        rng.normal(size=(2, 1)),
        rng.normal(size=(1, 3)),
    )
    w = rng.normal(size=6)
    x = found.forward(w)
    assert x[3] == w[3]
    assert not np.allclose(x[[0, 1, 2, 4, 5]], w[[0, 1, 2, 4, 5]])
    np.testing.assert_allclose(found.inverse(x), w, rtol=1e-12)
    by_x = rng.normal(size=6)
    np.testing.assert_allclose(found.gradient(by_x), matrix_of(found, 6).T @ by_x, rtol=1e-12)


@pytest.mark.parametrize(
    "precision",
    [
        precision_with(0.5, [1.0, 100.0]),
        -precision_with(0.99, [1.0, 1.0]),
        np.array([[1.0, 2.0], [2.0, 1.0]]),
        np.full((2, 2), np.nan),
        np.array([[1.0, np.inf], [np.inf, 1.0]]),
        np.zeros((2, 2)),
    ],
    ids=["hardly correlated", "minimum", "saddle", "nan", "inf", "flat"],
)
def test_uncorrelated_posterior_needs_no_map(precision):
    found, ratio = found_of(precision, 1, 1)
    assert found is None or ratio == np.inf


def test_long_variable_alone_has_no_map():
    assert found_of(precision_with(0.9, [1.0] * 130), 130) == (None, 1.0)
    assert found_of(np.eye(1), 1) == (None, 1.0)


def regression(**scale) -> pm.Model:
    rng = np.random.default_rng(2)
    year = rng.integers(1990, 2020, size=200).astype(float)
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 1000), pm.Normal("b", 0, 10)
        sigma = pm.HalfNormal("sigma", 5)
        spread = pm.HalfNormal("spread", **scale) if scale else 1000.0
        c = pm.Normal("c", 0, spread)
        pm.Normal("y", a + b * year + c, sigma, observed=rng.normal(size=200) + 0.3 * year)
    return model


def coordinates(model: pm.Model) -> LinearMap | None:
    compiled = pymc_fastlogp.compile_pymc_model(model)
    return find_linear_map(model, compiled, compiled.initial_point_func(0))


def test_coefficients_of_a_regression_are_mapped():
    found = coordinates(regression())
    assert len(found.indices) == 4
    assert abs(found.matrix).max() > 100


def test_hierarchical_priors_are_left_alone(caplog):
    with caplog.at_level("INFO", logger="pymc_fastlogp"):
        assert coordinates(regression(sigma=1)) is None
    assert "the prior of c depends on other parameters" in caplog.text


def test_model_without_sites_is_left_alone(caplog):
    with pm.Model() as model:
        walk = pm.Normal("start") + (pm.HalfNormal("step") * pm.Normal("raw", shape=5)).cumsum()
        pm.Normal("y", walk, 0.1, observed=np.arange(5.0))
    with caplog.at_level("INFO", logger="pymc_fastlogp"):
        assert coordinates(model) is None
    assert "the effect raw has no site" in caplog.text


@pytest.mark.parametrize("make", [as_written.lkj_by_row, as_written.used_twice, as_written.spatial])
def test_non_gaussian_posterior_is_left_alone(make, caplog):
    with caplog.at_level("INFO", logger="pymc_fastlogp"):
        compiled = pymc_fastlogp.compile_pymc_model(make(), reparametrize=True)
    assert "the posterior is not Gaussian" in caplog.text
    assert not isinstance(compiled, TransformedModel)


@pytest.mark.filterwarnings("error")
def test_non_finite_gradients_do_not_warn():
    above = pm.distributions.transforms.Interval(lower=-1)
    with pm.Model() as model:
        x = pm.Normal("x", [1.0, 2.0, 3.0], 1.0, transform=above)
        pm.Normal("y", x, pm.HalfNormal("s"), observed=[1.1, 1.9, 3.2])
    coordinates(model)


def test_gradients_are_linear_only_for_a_gaussian():
    precision = np.array([[4.0, 3.9], [3.9, 4.0]])
    found, _ = linear_map(lambda x: -precision @ x, np.zeros(2), [np.arange(2)])

    def gaussian(x):
        return -0.5 * x @ precision @ x, -precision @ x

    def heavy(x):
        # The same curvature at zero, and less and less of it away from there.
        return 0.0, -precision @ x / (1 + 4 * (x @ precision @ x))

    assert _mismatch(gaussian, found, np.zeros(2)) < 1e-6
    assert _mismatch(heavy, found, np.zeros(2)) > MAX_MISMATCH


def test_map_is_found_at_the_mode_of_the_marginal_density():
    n, prior = 300, precision_with(0.9, [1.0, 1.0])
    levels = np.linspace(-3, 3, n)

    def density(x):
        """Parameters ``p ~ N(0, prior^-1)``, dependents ``f ~ N(levels * (p[0] + p[1]), exp(-p[0] / 50))``."""
        p, f = x[:2], x[2:]
        away, precision = f - levels * p.sum(), np.exp(p[0] / 50)
        squares = away @ away
        logp = -0.5 * p @ prior @ p + n * p[0] / 100 - 0.5 * precision * squares
        by_p = -prior @ p + precision * (levels @ away)
        by_p[0] += n / 100 - precision * squares / 100
        return logp, np.concatenate([by_p, -precision * away])

    own = [np.arange(2)]
    found, _, mode, _ = _find_map_at_mode(density, np.ones(n + 2), own, [2 + np.arange(n)])
    np.testing.assert_allclose(mode, 0, atol=1e-3)
    joint = np.linalg.inv(prior)[0] * n / 100
    assert np.linalg.norm(joint) > 4
    mapped = found.matrix.T @ (prior + np.diag([n / 5000, 0])) @ found.matrix
    np.testing.assert_allclose(mapped, np.eye(2), atol=1e-2)
    matrix = matrix_of(found, n + 2)
    np.testing.assert_allclose(matrix[2:, :2], np.outer(levels, matrix[:2, :2].sum(0)), atol=1e-2)


def test_failed_evaluation_is_no_gaussian():
    precision = np.array([[4.0, 3.9], [3.9, 4.0]])
    found, _ = linear_map(lambda x: -precision @ x, np.zeros(2), [np.arange(2)])

    def refused(x):
        raise ValueError

    assert _mismatch(refused, found, np.zeros(2)) == np.inf
