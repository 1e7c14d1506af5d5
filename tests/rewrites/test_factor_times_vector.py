"""A Cholesky factor times a vector takes its gradient by the inverse of a triangle."""

from functools import partial

import mpmath
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.linalg.decomposition.cholesky import cholesky

import pymc_fastlogp
from pymc_fastlogp.config import switched
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.ops import RankOnePullback
from pymc_fastlogp.rewrites.linalg.factor_times_vector import FactorTimesVector
from tests.rewrites.conftest import (
    ops_of,
    pregrad,
    with_gradients,
)

N = 40
RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0, 3, N))
DISTANCES = (X[:, None] - X) ** 2

s = pt.vector("s", shape=(2,))
free = pt.matrix("free", shape=(N, N))  # nothing says that it is symmetric
z = pt.vector("z", shape=(N,))
given = pt.vector("given", shape=(N,))
columns = pt.matrix("columns", shape=(N, 2))
INPUTS = [s, free, z, given, columns]
K = s[0] * pt.exp(-s[1] * DISTANCES) + 0.3 * pt.eye(N)

FIRES = {
    "latent process": (given * pt.dot(cholesky(K), z)).sum(),
    "by the operator": (given * pt.tanh(cholesky(K) @ z)).sum(),
    "of a column": (given[:, None] * (cholesky(K) @ z[:, None])).sum(),
    "one triangle of a matrix": (given * pt.exp(0.1 * (cholesky(free) @ z))).sum(),
    "with a mean": pt.sqr(given - s[1] - cholesky(K) @ z).sum(),
}
FEW = s[0] * pt.exp(-s[1] * DISTANCES[:32, :32]) + 0.3 * pt.eye(32)
OPEN = pt.matrix("open")
REFUSES = {
    "few rows": (cholesky(FEW) @ z[:32]).sum(),
    "matrix on the right": (cholesky(K) @ columns).sum(),
    "upper factor": (cholesky(K, lower=False) @ z).sum(),
    "transposed factor": (cholesky(K).T @ z).sum(),
    "factor that something else needs": (cholesky(K) @ z).sum() + pt.exp(cholesky(K)).sum(),
    "open length": (cholesky(OPEN) @ z).sum(),
    "more rows than kernels take": (
        cholesky(s[0] + pt.exp(s[1]) * pt.eye(401)) @ pt.exp(s[0] * pt.arange(401))
    ).sum(),
    "multiple of a constant, whose factor is known": (
        cholesky(s[0] * (np.exp(-DISTANCES) + np.eye(N))) @ z
    ).sum(),
    "float32": (cholesky(pt.cast(K, "float32")) @ pt.cast(z, "float32")).sum(),
}


@pytest.mark.parametrize("name", FIRES)
def test_fires_before_the_gradient(name):
    assert FactorTimesVector in ops_of(pregrad(FIRES[name], on=True))


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert FactorTimesVector not in ops_of(pregrad(REFUSES[name], on=True))


def test_rule_is_excluded_by_name():
    out = pregrad(FIRES["latent process"], on=True, exclude=["fastlogp_factor_times_vector"])
    assert FactorTimesVector not in ops_of(out)


def values():
    rng = np.random.default_rng(1)
    root = rng.normal(size=(N, N))
    return [
        np.array([0.8, 1.7]),
        root @ root.T + np.eye(N) + np.triu(rng.normal(size=(N, N)), 1),
        rng.normal(size=N),
        rng.normal(size=N),
        rng.normal(size=(N, 2)),
    ]


compiled = partial(with_gradients, inputs=INPUTS)


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    """The gradient includes a matrix of which only the lower triangle counts, as upstream."""
    on, off = (compiled(FIRES[name], on=on) for on in (True, False))
    assert any(isinstance(node.op, FusedKernel) for node in on.maker.fgraph.apply_nodes)
    for found, expected in zip(on(*values()), off(*values()), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_gradient_without_kernels_agrees():
    on, off = (
        compiled(FIRES["latent process"], on=on, mode="FAST_COMPILE") for on in (True, False)
    )
    assert any(isinstance(node.op, RankOnePullback) for node in on.maker.fgraph.apply_nodes)
    for found, expected in zip(on(*values()), off(*values()), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_indefinite_matrix_gives_nan_as_upstream():
    on, off = (compiled(FIRES["latent process"], on=on) for on in (True, False))
    given = values()
    given[0] = np.array([-5.0, 1.0])
    for found, expected in zip(on(*given), off(*given), strict=True):
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))


def exact_gradient(x, length_scale, z, weights):
    """Return the derivative of ``weights @ cholesky(K) @ z`` by the length scale, to 60 digits."""
    n = len(x)
    with mpmath.workdps(60):
        length = mpmath.mpf(length_scale)
        squares = [[(mpmath.mpf(a) - mpmath.mpf(b)) ** 2 for b in x] for a in x]
        k = [[mpmath.exp(-d / (2 * length**2)) for d in row] for row in squares]
        dk = [[k[i][j] * squares[i][j] / length**3 for j in range(n)] for i in range(n)]
        factor, tangent = mpmath.zeros(n), mpmath.zeros(n)
        for j in range(n):
            for i in range(j, n):
                rest = k[i][j] + (mpmath.mpf(1e-6) if i == j else 0)
                rest -= sum(factor[i, m] * factor[j, m] for m in range(j))
                change = dk[i][j] - sum(
                    tangent[i, m] * factor[j, m] + factor[i, m] * tangent[j, m] for m in range(j)
                )
                if i == j:
                    factor[j, j] = mpmath.sqrt(rest)
                    tangent[j, j] = change / (2 * factor[j, j])
                else:
                    factor[i, j] = rest / factor[j, j]
                    tangent[i, j] = (change - factor[i, j] * tangent[j, j]) / factor[j, j]
        total = sum(
            mpmath.mpf(weights[i]) * tangent[i, j] * mpmath.mpf(z[j])
            for i in range(n)
            for j in range(i + 1)
        )
        return float(total)


def test_digits_of_an_ill_conditioned_kernel():
    """The errors over some draws are not larger than four times upstream's."""
    n = 34
    x, rng = np.linspace(0, 10, n), np.random.default_rng(2)
    length, z, weights = pt.dscalar("length"), pt.vector("z", shape=(n,)), pt.vector(shape=(n,))
    kernel = pt.exp(-((x[:, None] - x) ** 2) / (2 * length**2)) + 1e-6 * np.eye(n)
    out = (weights * (cholesky(kernel) @ z)).sum()
    errors = {True: [], False: []}
    functions = {}
    for on in errors:
        with switched(on):
            logp = pregrad(out, on=on)
            functions[on] = pytensor.function(
                [length, z, weights], pytensor.grad(logp, length), mode="NUMBA"
            )
    for _ in range(6):
        given = (rng.uniform(1, 4), rng.normal(size=n), rng.normal(size=n))
        exact = exact_gradient(x, *given)
        for on, function in functions.items():
            errors[on].append(abs(function(*given) / exact - 1))
    assert np.median(errors[True]) < 4 * np.median(errors[False])
    assert max(errors[True]) < 4 * max(errors[False])


def test_a_latent_process_is_verified():
    with pm.Model() as model:
        cov = pm.Exponential("eta", 1.0) ** 2 * pm.gp.cov.Matern52(1, pm.InverseGamma("ell", 3, 5))
        f = pm.gp.Latent(cov_func=cov).prior("f", X=np.linspace(0, 10, 40)[:, None])
        pm.Poisson("y", pm.math.exp(f), observed=RNG.poisson(1, 40))
    assert pymc_fastlogp.verify(model).passed
