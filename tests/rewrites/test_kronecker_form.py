"""The quadratic form of a Kronecker covariance takes its gradient by the factors, not by their eigenvectors."""

import mpmath
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.linalg.decomposition.eigen import eigh

from pymc_fastlogp.config import switched
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.rewrites.linalg.kronecker_form import KroneckerForm
from tests.rewrites.conftest import ops_of, pregrad, with_gradients

RULE = "fastlogp_kronecker_form"
RNG = np.random.default_rng(0)
A, B, C = (pt.matrix(name, shape=(n, n)) for name, n in (("A", 3), ("B", 4), ("C", 2)))
sigma = pt.scalar("sigma")
y, Y = pt.vector("y", shape=(12,)), pt.matrix("Y", shape=(5, 12))
INPUTS = [A, B, C, sigma, y, Y]


def logp(covs, value, **noise):
    n = np.prod([cov.type.shape[0] for cov in covs])
    return pm.logp(pm.KroneckerNormal.dist(mu=np.full(n, 0.5), covs=covs, **noise), value).sum()


def normal_matrix(n):
    root = RNG.normal(size=(n, n))
    return root @ root.T + np.eye(n)


VALUES = {
    A: normal_matrix(3),
    B: normal_matrix(4),
    C: normal_matrix(2),
    sigma: np.array(0.7),
    y: RNG.normal(size=12),
    Y: RNG.normal(size=(5, 12)),
}
LARGE = np.exp(-(np.subtract.outer(np.arange(30.0), np.arange(30.0)) ** 2))
FIRES = {
    "two factors": ([A, B], y, {"sigma": sigma}),
    "several vectors": ([A, B], Y, {"sigma": sigma}),
    "one row of vectors": ([A, B], Y[:1], {"sigma": sigma}),
    "no noise": ([A, B], y, {}),
    "one factor": ([A], y[:3], {"sigma": sigma}),
    "one factor, several vectors": ([A], Y[:, :3], {"sigma": sigma}),
    "the same factor twice": ([A, A], y[:9], {"sigma": sigma}),
    "three factors": ([A, B, C], pt.concatenate([y, y + 1]), {"sigma": sigma}),
    "three factors, several vectors": (
        [A, B, C],
        pt.concatenate([Y, Y + 1], axis=1),
        {"sigma": sigma},
    ),
    "constant vector": ([A, B, C], RNG.normal(size=24), {"sigma": sigma}),
    "many rows": ([sigma * LARGE, C], RNG.normal(size=60), {"sigma": sigma}),
}


def by_hand(rotated, products, noise=sigma**2):
    z = rotated.reshape((12, 1)) / pt.sqrt(products.ravel() + noise)[:, None]
    return pt.dot(z.T, z)[0, 0]


(a, P), (b, Q) = eigh(A), eigh(B)
E = pt.outer(a, b)
grid = y.reshape((3, 4))
REFUSES = {
    "one rotation is missing": by_hand(P.T @ grid, E),
    "rotation by rows": by_hand(P @ grid @ Q, E),
    "eigenvalues in another order": by_hand(P.T @ grid @ Q, pt.outer(b, a)),
    "eigenvalues of another matrix": by_hand(P.T @ grid @ Q, pt.outer(a, eigh(B + 1)[0])),
    "noise for each entry": by_hand(P.T @ grid @ Q, E, pt.exp(y)),
    "multiple of the eigenvalues": by_hand(P.T @ grid @ Q, E * pt.exp(grid)),
    "function before the division": by_hand(pt.exp(P.T @ grid @ Q), E),
    "upper triangle": by_hand(eigh(A, lower=False)[1].T @ grid @ Q, E),
    "product with another vector": pt.dot(P.T @ y[:3], (P.T @ y[3:6]) / a),
    "unknown length": pm.logp(
        pm.KroneckerNormal.dist(mu=y, covs=[pt.matrix("open"), B], sigma=sigma), 0.0 * y
    ),
    "single precision": logp([A.astype("float32"), B.astype("float32")], y, sigma=sigma),
}


def test_rewritten_by_hand():
    assert KroneckerForm in ops_of(pregrad(by_hand(P.T @ grid @ Q, E), on=True))


@pytest.mark.parametrize("name", FIRES)
def test_fires_before_the_gradient(name):
    covs, value, noise = FIRES[name]
    assert KroneckerForm in ops_of(pregrad(logp(covs, value, **noise), on=True))


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert KroneckerForm not in ops_of(pregrad(REFUSES[name], on=True))


def test_rule_is_excluded_by_name():
    out = pregrad(logp([A, B], y, sigma=sigma), on=True, exclude=[RULE])
    assert KroneckerForm not in ops_of(out)


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    """The gradient by a matrix is that by its lower triangle, as upstream."""
    covs, value, noise = FIRES[name]
    out = logp(covs, value, **noise)
    off, on = (with_gradients(out, INPUTS, on=on)(*VALUES.values()) for on in (False, True))
    if name == "many rows":  # Upstream's derivative of eigenvectors has no correct digit.
        off, on = off[:1], on[:1]
    for found, expected in zip(on, off, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_graph_of_the_gradient_is_one_kernel():
    function = with_gradients(logp([A, B], y, sigma=sigma), INPUTS, on=True)
    [kernel] = (n for n in function.maker.fgraph.apply_nodes if isinstance(n.op, FusedKernel))
    assert not [op for op in ops_of(kernel.outputs[0]) if op is KroneckerForm]


def exact(lengthscales, noise, grids, data):
    """Return the log density of a process with squared exponential kernels, and its gradient by length-scales and noise, by dense matrices."""
    with mpmath.workdps(60):
        ls, noise = [mpmath.mpf(float(x)) for x in lengthscales], mpmath.mpf(float(noise))
        squares = [
            [[(mpmath.mpf(float(s)) - mpmath.mpf(float(t))) ** 2 for t in grid] for s in grid]
            for grid in grids
        ]
        pairs = [(i, j) for i in range(len(grids[0])) for j in range(len(grids[1]))]
        n = len(pairs)
        covariance, by_first, by_second = (mpmath.zeros(n) for _ in range(3))
        for row, (i, j) in enumerate(pairs):
            for column, (k, m) in enumerate(pairs):
                first, second = squares[0][i][k], squares[1][j][m]
                value = mpmath.exp(-first / (2 * ls[0] ** 2) - second / (2 * ls[1] ** 2))
                covariance[row, column] = value + (noise**2 if row == column else 0)
                by_first[row, column] = value * first / ls[0] ** 3
                by_second[row, column] = value * second / ls[1] ** 3
        inverse = covariance**-1
        vector = mpmath.matrix([mpmath.mpf(float(x)) for x in data])
        solution = inverse * vector
        logp = -(
            (vector.T * solution)[0]
            + mpmath.log(mpmath.det(covariance))
            + n * mpmath.log(2 * mpmath.pi)
        )
        gradient = [
            (solution.T * change * solution)[0]
            - sum(inverse[i, j] * change[i, j] for i in range(n) for j in range(n))
            for change in (by_first, by_second, 2 * noise * mpmath.eye(n))
        ]
        return float(logp / 2), np.array([float(x / 2) for x in gradient])


def test_digits_of_the_gradient_of_a_smooth_process():
    """Most eigenvalues of the factors are next to zero, so that their differences are round-off."""
    grids = [np.linspace(0, 1, 6), np.linspace(0, 1, 7)]
    data = RNG.normal(size=42)
    ls, noise = pt.vector("ls", shape=(2,)), pt.scalar("noise")
    covs = [
        pt.exp(-(np.subtract.outer(grid, grid) ** 2) / (2 * ls[i] ** 2))
        for i, grid in enumerate(grids)
    ]
    out = pm.logp(pm.KroneckerNormal.dist(mu=np.zeros(42), covs=covs, sigma=noise), data)
    value, by_ls, by_noise = with_gradients(out, [ls, noise], on=True)([0.9, 0.7], 0.3)
    expected, gradient = exact([0.9, 0.7], 0.3, grids, data)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose([*by_ls, by_noise], gradient, rtol=1e-10)


def test_equal_eigenvalues():
    """A multiple of the identity, whose eigenvectors are arbitrary."""
    scale = pt.scalar("scale")
    out = logp([scale * np.eye(3), B], y, sigma=sigma)
    value, by_scale = with_gradients(out, [scale, B, sigma, y], on=True)(
        0.8, VALUES[B], VALUES[sigma], VALUES[y]
    )[:2]
    deviation = VALUES[y] - 0.5
    inverse = np.linalg.inv(0.8 * np.kron(np.eye(3), VALUES[B]) + 0.49 * np.eye(12))
    change, solution = np.kron(np.eye(3), VALUES[B]), inverse @ deviation
    logdet = np.linalg.slogdet(inverse)[1]
    np.testing.assert_allclose(
        value, -0.5 * (deviation @ solution - logdet + 12 * np.log(2 * np.pi)), rtol=1e-12
    )
    np.testing.assert_allclose(
        by_scale, 0.5 * (solution @ change @ solution - np.trace(inverse @ change)), rtol=1e-12
    )


@pytest.mark.parametrize("backend", ["FAST_COMPILE", "JAX"])
def test_other_backends(backend):
    if backend == "JAX":
        pytest.importorskip("jax")
    out, given = logp([A, B], y, sigma=sigma), [VALUES[x] for x in (A, B, sigma, y)]
    off = with_gradients(out, [A, B, sigma, y], on=False)(*given)
    on = with_gradients(out, [A, B, sigma, y], on=True, mode=backend)(*given)
    for found, expected in zip(on, off, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_a_gradient_that_was_taken_before_is_left_alone():
    """PyMC rewrites a logp in place, and the gradient that was taken before shares its nodes."""
    out = logp([A, B], y, sigma=sigma)
    with switched(True):
        gradient = pytensor.grad(out, y)
        assert KroneckerForm in ops_of(pm.pytensorf.rewrite_pregrad(out))
        found = pytensor.function([A, B, sigma, y], gradient, mode="FAST_COMPILE")(
            *(VALUES[x] for x in (A, B, sigma, y))
        )
    covariance = np.kron(VALUES[A], VALUES[B]) + 0.49 * np.eye(12)
    np.testing.assert_allclose(found, -np.linalg.solve(covariance, VALUES[y] - 0.5), rtol=1e-10)
