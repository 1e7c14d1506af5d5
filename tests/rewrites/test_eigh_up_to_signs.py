"""Eigenvectors whose signs do not matter come from another function of LAPACK."""

from functools import partial

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.pytensorf import rewrite_pregrad
from pytensor.tensor.linalg.decomposition.eigen import eigh

import pymc_fastlogp
from pymc_fastlogp.config import switched
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.ops import EighUpToSigns
from tests.rewrites.conftest import (
    ops_of,
    pregrad,
    with_gradients,
)

N = 7
RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0, 3, N))
DISTANCES = np.abs(X[:, None] - X)


def at_distances(n):
    points = np.sort(np.random.default_rng(n).uniform(0, 9, n))
    return np.abs(points[:, None] - points)


s = pt.vector("s", shape=(2,))
y = pt.vector("y", shape=(N,))
more = pt.matrix("more", shape=(N, 4))
wide = pt.matrix("wide", shape=(4, N))
INPUTS = [s, y, more]
K = s[0] * pt.exp(-s[1] * DISTANCES) + 0.3 * pt.eye(N)
w, Q = eigh(K)
w4, Q4 = eigh(s[1] * pt.exp(-s[0] * DISTANCES[:4, :4]))
LARGE, LARGEST = (eigh(s[0] * pt.exp(-s[1] * at_distances(n)) + pt.eye(n)) for n in (26, 25))
BATCH = eigh(pt.stack([K] * N))

FIRES = {
    "quadratic form": (pt.sqr(Q.T @ y) / (w + s[1])).sum(),
    "power": ((Q.T @ y) ** 2 / w).sum(),
    "by columns": (pt.sqr(Q.T @ more) / w[:, None]).sum(),
    "scaled before the square": pt.sqr((Q.T @ y) / pt.sqrt(w)).sum(),
    "inner product with itself": pt.dot((Q.T @ y) * w, (Q.T @ y) * w),
    "two factors": pt.sqr(
        (Q.T @ more @ Q4).ravel() / pt.sqrt((w[:, None] * w4).ravel() + s[0])
    ).sum(),
    "eigenvalues alone": pt.log(w).sum(),
    "as many rows as there may be": (
        pt.sqr(LARGEST[1].T @ pt.exp(s[0] * np.linspace(0, 1, 25))) / LARGEST[0]
    ).sum(),
}
REFUSES = {
    "projection": (Q.T @ y).sum(),
    "absolute values": pt.abs(Q.T @ y).sum(),
    "exponential": pt.exp(Q.T @ y).sum(),
    "sum over columns": pt.sqr(Q @ y).sum(),
    "sum over columns on the right": pt.sqr(wide @ Q.T).sum(),
    "of a batch": pt.log(BATCH[0]).sum(),
    "two matrices": pt.log(eigh(K, pt.eye(N) + s[0])[0]).sum(),
    "entry": pt.sqr(Q[0, 1] + Q[0, 2]),
    "product of entries": pt.dot((Q.T @ y)[None, :], (Q.T @ pt.exp(y))[:, None]).sum(),
    "sum with something": pt.sqr(Q.T @ y - s[0]).sum(),
    "denominator": pt.sqr(1 / (Q.T @ y)).sum(),
    "gram matrix": pt.dot(more.T @ Q, (more.T @ Q).T).sum(),
    "many rows": (pt.sqr(LARGE[1].T @ pt.ones(26)) / LARGE[0]).sum(),
    "upper triangle": pt.log(eigh(K, lower=False)[0]).sum(),
    "float32": pt.log(eigh(pt.cast(K, "float32"))[0]).sum(),
    "open length": pt.log(eigh(pt.matrix("open"))[0]).sum(),
}


@pytest.mark.parametrize("name", FIRES)
def test_fires_before_the_gradient(name):
    assert EighUpToSigns in ops_of(pregrad(FIRES[name], on=True))


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert EighUpToSigns not in ops_of(pregrad(REFUSES[name], on=True))


def test_rule_is_excluded_by_name():
    out = pregrad(FIRES["power"], on=True, exclude=["fastlogp_eigh_up_to_signs"])
    assert EighUpToSigns not in ops_of(out)


compiled = partial(with_gradients, inputs=INPUTS)


def values():
    return [np.array([0.8, 1.7]), RNG.normal(size=N), RNG.normal(size=(N, 4))]


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    given = values()
    on, off = (compiled(FIRES[name], on=on) for on in (True, False))
    [kernel] = (n for n in on.maker.fgraph.apply_nodes if isinstance(n.op, FusedKernel))
    assert any(isinstance(node.op, EighUpToSigns) for node in kernel.op.fgraph.toposort())
    for found, expected in zip(on(*given), off(*given), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_agrees_without_kernels():
    given = values()
    on, off = (compiled(FIRES["two factors"], on=on, mode="FAST_COMPILE") for on in (True, False))
    for found, expected in zip(on(*given), off(*given), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_nan_gives_nan():
    given = [np.array([np.nan, 1.0]), *values()[1:]]
    assert np.isnan(compiled(FIRES["quadratic form"], on=True)(*given)[0])


@pytest.mark.slow
def test_a_kronecker_process_is_verified():
    with pm.Model() as model:
        covs = [pm.gp.cov.Matern32(1, ls=pm.InverseGamma(f"ls{i}", 3, 2)) for i in range(3)]
        gp = pm.gp.MarginalKron(cov_funcs=covs)
        grids = [np.linspace(0, 1, n)[:, None] for n in (3, 4, 5)]
        gp.marginal_likelihood("y", grids, RNG.normal(size=60), pm.HalfNormal("sigma"))
    assert pymc_fastlogp.verify(model).passed


@pytest.mark.parametrize("covariances", ["covs", "chols"])
def test_a_gradient_that_was_taken_before_keeps_its_signs(covariances):
    """PyMC rewrites a logp in place, and what was made of it before shares its nodes."""
    rng = np.random.default_rng(0)
    roots = [np.eye(n) + 0.3 * np.tril(rng.normal(size=(n, n))) for n in (2, 3)]
    given = [root if covariances == "chols" else root @ root.T for root in roots]
    exact = np.kron(*(root @ root.T for root in roots))
    x_value = rng.normal(size=6)
    mu, x = pt.vector("mu", shape=(6,)), pt.vector("x", shape=(6,))
    matrices = [pt.matrix(f"m{n}", shape=(n, n)) for n in (2, 3)]
    with switched(True):
        logp = pm.logp(pm.KroneckerNormal.dist(mu=mu, **{covariances: matrices}), x)
        gradient = pytensor.grad(logp, mu)
        rewritten = rewrite_pregrad(logp)
        ops = ops_of(rewritten)
        function = pytensor.function([mu, x, *matrices], gradient, mode="NUMBA")
    assert EighUpToSigns in ops
    np.testing.assert_allclose(
        function(np.zeros(6), x_value, *given), np.linalg.solve(exact, x_value), rtol=1e-10
    )
