"""Covariances of constant distances are computed for their lower triangle alone."""

from functools import partial

import mpmath
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.linalg import cholesky, solve_triangular

import pymc_fastlogp
from pymc_fastlogp.config import switched
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.ops import PackTriangle, UnpackTriangle, rows_of_packed
from tests.rewrites.conftest import PYTHON, pregrad, with_gradients

N = 40
RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0, 3, N))
DISTANCES = np.abs(X[:, None] - X)

s = pt.vector("s", shape=(3,))
y = pt.vector("y", shape=(N,))
free = pt.matrix("free", shape=(N, N))
INPUTS = [s, y, free]
NOISE = 0.3 * np.eye(N)


def density(covariance):
    """Return what a Gaussian log density has of a covariance and ``y``."""
    factor = cholesky(covariance)
    solved = solve_triangular(factor, y, lower=True, b_ndim=1)
    return -0.5 * (solved**2).sum() - pt.log(pt.diagonal(factor)).sum()


def squares(x, scale):
    """Return squared distances as ``pm.gp.cov.Stationary`` writes them."""
    x = x[:, None] / scale
    norms = pt.sum(pt.sqr(x), 1)
    product = -2.0 * pt.dot(x, pt.transpose(x))
    return pt.clip(product + (norms.reshape((-1, 1)) + norms.reshape((1, -1))), 0.0, np.inf)


def own_rows(covariance):
    """Return a sum that depends on whole rows of a covariance, each of which is solved for by its own factor."""
    solved = solve_triangular(cholesky(covariance), covariance, lower=True, b_ndim=1)
    return pt.exp(-(solved**2).sum(axis=-1)).sum()


EXPONENTIAL = pt.exp(-s[0] * DISTANCES)
FIRES = {
    "exponential": density(s[1] * EXPONENTIAL + NOISE),
    "of a latent process": (y * (cholesky(EXPONENTIAL + NOISE) @ pt.ones(N))).sum(),
    "scaled points": density(pt.exp(-0.5 * squares(X, s[0])) + NOISE),
    "scaled points, two kernels": density(
        s[1] * pt.exp(-0.5 * squares(X, s[0]))
        + (1 + 0.5 * squares(X, s[1]) / s[2]) ** (-s[2])
        + NOISE
    ),
    "matern": density(
        (1 + 5**0.5 * pt.sqrt(squares(X, s[0]) + 1e-12))
        * pt.exp(-(5**0.5) * pt.sqrt(squares(X, s[0]) + 1e-12))
        + NOISE
    ),
    "noise": density(EXPONENTIAL + pt.diag(pt.alloc(pt.sqr(s[2]), N))),
    "noise by row": density(EXPONENTIAL + pt.diag(pt.exp(y))),
    "integers": density(pt.exp(-s[0] * np.abs(np.arange(N)[:, None] - np.arange(N))) + NOISE),
    "a mask": density(pt.switch(DISTANCES < 1, EXPONENTIAL, 0.0) + 3 * NOISE),
    "scaled by a small difference": density(
        pt.exp(-(DISTANCES / s[0] - 0.5 * DISTANCES / s[0])) + NOISE
    ),
}
LOPSIDED = DISTANCES + np.triu(np.full((N, N), 0.1), 1)
INFINITE = np.where(DISTANCES > 2, np.inf, DISTANCES)
REFUSES = {
    "not symmetric": density(pt.exp(-s[0] * LOPSIDED) + NOISE),
    "not finite": density(pt.exp(-s[0] * INFINITE) + NOISE),
    "not constant": density(pt.exp(-s[0] * free) + NOISE),
    "scaled by columns": density(pt.exp(-pt.exp(y)[:, None] * DISTANCES) + NOISE),
    "beside the diagonal": density(EXPONENTIAL + pt.diag(0.1 * y[1:], k=1) + NOISE),
    "no function": density(s[0] * DISTANCES + 50 * NOISE),
    "few rows": density(0.0 * s[0] + NOISE) + cholesky(EXPONENTIAL[:20, :20]).sum(),
    "the covariance is read": density(EXPONENTIAL + NOISE) + (EXPONENTIAL + NOISE)[3, 5],
    "a part is read": density(EXPONENTIAL + NOISE) + (EXPONENTIAL @ y).sum(),
    "the covariance is solved for": own_rows(EXPONENTIAL + NOISE),
    "upper factor": pt.log(pt.diagonal(cholesky(EXPONENTIAL + NOISE, lower=False))).sum(),
    "sum of unlike scales": density(pt.exp(-(DISTANCES[:, :1] / s[0] + DISTANCES / s[1])) + NOISE),
    "float32": density(pt.exp(-pt.cast(s[0], "float32") * DISTANCES.astype("float32")) + free),
}


def packed_in(out):
    return any(isinstance(x.owner_op, UnpackTriangle) for x in ancestors([out]))


@pytest.mark.parametrize("name", FIRES)
def test_fires_before_the_gradient(name):
    """No function of a matrix is left."""
    out = pregrad(FIRES[name], on=True)
    assert packed_in(out)
    matrices = [x for x in ancestors([out]) if x.type.ndim == 2 and x.type.shape == (N, N)]
    assert not any(isinstance(x.owner_op, Elemwise) for x in matrices)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert not packed_in(pregrad(REFUSES[name], on=True))


def test_rule_is_excluded_by_name():
    out = FIRES["exponential"]
    assert not packed_in(pregrad(out, on=True, exclude=["fastlogp_packed_covariance"]))


def test_terms_share_one_packed_triangle():
    """Otherwise each term would compute the functions and their derivatives again."""
    out = pregrad(FIRES["scaled points, two kernels"], on=True)
    assert len({x for x in ancestors([out]) if isinstance(x.owner_op, UnpackTriangle)}) == 1


def values():
    return [np.array([0.8, 1.7, 0.6]), np.sin(X) + 0.1, DISTANCES + 0.1]


compiled = partial(with_gradients, inputs=INPUTS)


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    on, off = (compiled(FIRES[name], on=on) for on in (True, False))
    assert any(isinstance(node.op, FusedKernel) for node in on.maker.fgraph.apply_nodes)
    for found, expected in zip(on(*values()), off(*values()), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


TINY, HUGE = 1e-170 * DISTANCES, 1e170 * DISTANCES


@pytest.mark.parametrize(
    ("squared", "scale"),
    [
        (pt.sqr(s[0] * TINY), 1e170),
        ((s[0] * TINY) * (s[0] * TINY.T), 1e170),
        (pt.sqr(TINY / s[0]), 1e-170),
        (pt.sqr(s[0] * HUGE), 1e-170),
    ],
)
def test_scaled_distances_neither_overflow_nor_underflow(squared, scale):
    out = density(pt.exp(-squared) + NOISE)
    at = {s: np.array([scale, 1.0, 1.0]), y: np.sin(X)}
    off, on = (pregrad(out, on=on).eval(at, mode=PYTHON) for on in (False, True))
    expected = density(pt.exp(-pt.sqr(DISTANCES)) + NOISE).eval({y: np.sin(X)}, mode=PYTHON)
    np.testing.assert_allclose(off, expected, rtol=1e-10)
    np.testing.assert_allclose(on, expected, rtol=1e-10)
    assert packed_in(pregrad(out, on=True))


@pytest.mark.parametrize("name", REFUSES)
def test_refused_graphs_agree_with_upstream(name):
    on, off = (compiled(REFUSES[name], on=on) for on in (True, False))
    tolerance = 1e-5 if name == "float32" else 1e-9
    for found, expected in zip(on(*values()), off(*values()), strict=True):
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-2 * tolerance)


def test_gradient_without_kernels_agrees():
    on, off = (compiled(FIRES["matern"], on=on, mode="FAST_COMPILE") for on in (True, False))
    assert any(isinstance(node.op, PackTriangle) for node in on.maker.fgraph.apply_nodes)
    for found, expected in zip(on(*values()), off(*values()), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("scales", [[-2.0, 1.0, 1.0], [np.nan, 1.0, 1.0], [1.0, -5.0, 1.0]])
def test_non_finite_results_stay_non_finite(scales):
    on, off = (compiled(FIRES["exponential"], on=on) for on in (True, False))
    given = [np.array(scales), *values()[1:]]
    for found, expected in zip(on(*given), off(*given), strict=True):
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))


@pytest.mark.parametrize("length", [2, 4, 5, 7])
def test_invalid_packed_length_raises(length):
    with pytest.raises(ValueError, match="no triangle"):
        rows_of_packed(length)


@given(n=st.integers(33, 70), n_kernels=st.integers(1, 3), seed=st.integers(0, 99))
@settings(max_examples=3)
def test_any_number_of_rows_agrees(n, n_kernels, seed):
    rng = np.random.default_rng(seed)
    x, scales = rng.uniform(0, 5, n), pt.vector("scales", shape=(n_kernels,))
    covariance = 0.2 * np.eye(n)
    for k in range(n_kernels):
        covariance = covariance + pt.exp(-0.5 * squares(x, scales[k])) / (k + 1)
    out = pt.log(pt.diagonal(cholesky(covariance))).sum()
    results = []
    for on in (True, False):
        logp = pregrad(out, on=on)
        assert packed_in(logp) == on
        with switched(on):
            outputs = [logp, pytensor.grad(logp, scales)]
            results.append(pytensor.function([scales], outputs, mode="NUMBA"))
    at = rng.uniform(0.5, 2, n_kernels)
    for found, expected in zip(*(function(at) for function in results), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def exact(x, length):
    """Return half the log-determinant of a covariance and its derivative by the length scale, to 60 digits."""
    n = len(x)
    with mpmath.workdps(60):
        scale = mpmath.mpf(length)
        squared = [[(mpmath.mpf(a) - mpmath.mpf(b)) ** 2 for b in x] for a in x]
        k, dk = mpmath.zeros(n), mpmath.zeros(n)
        for i in range(n):
            for j in range(n):
                value = mpmath.exp(-squared[i][j] / (2 * scale**2))
                k[i, j] = value + (mpmath.mpf(1e-6) if i == j else 0)
                dk[i, j] = value * squared[i][j] / scale**3
        inverse = k**-1
        trace = sum(inverse[i, j] * dk[j, i] for i in range(n) for j in range(n))
        return float(mpmath.log(mpmath.det(k)) / 2), float(trace / 2)


def test_digits_of_an_ill_conditioned_covariance():
    """Errors are not larger than four times upstream's: of distances that are written as differences there are more digits."""
    x, length = np.linspace(0, 10, 34), pt.dscalar("length")
    out = pt.log(pt.diagonal(cholesky(pt.exp(-0.5 * squares(x, length)) + 1e-6 * np.eye(34)))).sum()
    errors = {True: [], False: []}
    for on in errors:
        with switched(on):
            logp = pregrad(out, on=on)
            outputs = [logp, pytensor.grad(logp, length)]
            function = pytensor.function([length], outputs, mode="NUMBA")
        for scale in (1.0, 1.7, 3.1):
            of_each = zip(function(scale), exact(x, scale), strict=True)
            errors[on].append([abs(found / expected - 1) for found, expected in of_each])
    assert (np.max(errors[True], axis=0) <= 4 * np.max(errors[False], axis=0)).all()


def test_a_process_is_verified():
    with pm.Model() as model:
        cov = pm.Exponential("eta", 1.0) ** 2 * pm.gp.cov.Matern52(1, pm.InverseGamma("ell", 3, 5))
        gp = pm.gp.Marginal(cov_func=cov)
        x = np.linspace(0, 10, 40)[:, None]
        gp.marginal_likelihood("y", X=x, y=RNG.normal(size=40), sigma=pm.HalfNormal("sigma"))
    assert pymc_fastlogp.verify(model).passed
