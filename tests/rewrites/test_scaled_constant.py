"""A scaled constant matrix is factored once, and triangular solves use the constant itself."""

from itertools import product

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular

import pymc_fastlogp
from tests.rewrites.conftest import (
    PYTHON,
    nodes_of,
    pregrad,
)

N = 3
K = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.3], [0.1, 0.3, 1.5]])
L = np.linalg.cholesky(K)
s, t = pt.scalars("s", "t")
v, b = pt.vector("v", shape=(N,)), pt.vector("b", shape=(N,))
columns = pt.matrix("columns", shape=(N, 2))
matrix = pt.matrix("matrix", shape=(N, N))

rng = np.random.default_rng(0)
VALUES = {
    s: np.array(0.7),
    t: np.array(1.9),
    v: np.array([0.5, 1.2, 2.0]),
    b: rng.normal(size=N),
    columns: rng.normal(size=(N, 2)),
    matrix: rng.normal(size=(N, N)),
}


def solves_as_it_is(out):
    """Return whether all triangular systems are of constants."""
    return all(isinstance(node.inputs[0], Constant) for node in nodes_of(out, SolveTriangular))


def evaluated(out, values, *, on, gradient=True):
    inputs = [x for x in values if x in set(ancestors([out]))]
    out = pregrad(out, on=on)
    gradients = pytensor.grad(out, inputs) if gradient else []
    function = pytensor.function(inputs, [out, *gradients], mode=PYTHON)
    return function(*(values[x] for x in inputs))


def log_det(covariance):
    return pt.log(pt.diagonal(cholesky(covariance), axis1=-2, axis2=-1)).sum()


def squares(factor, x=b, b_ndim=1):
    return (solve_triangular(factor, x, lower=True, b_ndim=b_ndim) ** 2).sum()


FACTORS = {
    "scaled": log_det(s * K),
    "scaled twice": log_det(s**2 * K * t),
    "divided": log_det(K / s),
    "in a batch of one": log_det((s * K)[None]),
    "of integers": log_det(s * np.array([[2, 1], [1, 2]])),
    "batch": log_det(s * np.stack([K, np.eye(N)])),
    "with the solve": squares(cholesky(s * K)) + log_det(s * K),
}
KEEPS_FACTOR = {
    "not scaled": log_det(matrix @ matrix.T),
    "scaled by rows": log_det(v[:, None] * K * v),
    "not constant": log_det(s * (matrix @ matrix.T)),
    "two matrices": log_det(s * K * (matrix @ matrix.T)),
    "not positive definite": log_det(s * -K),
    "not finite": log_det(s * np.where(K == 2, np.nan, K)),
    "upper": pt.log(pt.diagonal(cholesky(s * K, lower=False))).sum(),
    "divides": log_det(s / K),
}
SOLVES = {
    "a scalar": squares(s * L),
    "two scalars": squares(s * L * t),
    "rows": squares(v[:, None] * L),
    "columns on the right": squares(v[:, None] * L, columns, b_ndim=2),
    "a scalar, columns on the right": squares(s * L, columns, b_ndim=2),
    "rows on the right": squares(s * L, columns.T),
    "upper": (solve_triangular(v[:, None] * L.T, b, lower=False, b_ndim=1) ** 2).sum(),
    "in a batch of one": squares((v[:, None] * L)[None]),
    "what a batch of one held": squares((s * L[None]).squeeze(0))
    + pt.diagonal(s * L[None], axis1=1, axis2=2).sum(),
    "of a factor": squares(cholesky(s * K)),
}
KEEPS_SCALE = {
    "scaled by columns": squares(v * L),
    "not constant": squares(s * matrix),
    "unit diagonal": (
        solve_triangular(s * L, b, lower=True, unit_diagonal=True, b_ndim=1) ** 2
    ).sum(),
    "a sum": squares(s + L),
    "a column and a row": squares(v[:, None] * np.array([[1.0, 2.0, 3.0]])),
    "few bits, which go round": squares(
        pt.cast(100 * s, "int8") * np.array([[2, 0], [3, 4]], "int8"), b[:2]
    ),
}


@pytest.mark.parametrize("name", FACTORS)
def test_factorization_is_removed(name):
    assert nodes_of(pregrad(FACTORS[name], on=False), Cholesky)
    assert not nodes_of(pregrad(FACTORS[name], on=True), Cholesky)


@pytest.mark.parametrize("name", KEEPS_FACTOR)
def test_other_factorizations_are_kept(name):
    assert nodes_of(pregrad(KEEPS_FACTOR[name], on=True), Cholesky)


@pytest.mark.parametrize("name", SOLVES)
def test_solve_uses_the_constant(name):
    assert not solves_as_it_is(pregrad(SOLVES[name], on=False))
    assert solves_as_it_is(pregrad(SOLVES[name], on=True))


@pytest.mark.parametrize("name", KEEPS_SCALE)
def test_other_solves_are_kept(name):
    assert not solves_as_it_is(pregrad(KEEPS_SCALE[name], on=True))


def test_solve_uses_the_product_of_column_and_row():
    out = KEEPS_SCALE["a column and a row"]
    off, on = (evaluated(out, VALUES, on=on) for on in (False, True))
    assert np.isfinite(off[0])
    for expected, found in zip(off, on, strict=True):
        np.testing.assert_array_equal(found, expected)


ALL = {**{f"factor, {k}": x for k, x in FACTORS.items()}, **SOLVES}


@pytest.mark.parametrize("name", ALL)
def test_value_and_gradient(name):
    off, on = (evaluated(ALL[name], VALUES, on=on) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


NUMBERS = (0.0, -0.0, -1.0, np.inf, -np.inf, np.nan, 1e-300, 1e300)


@pytest.mark.parametrize(("rule", "number"), list(product(("factor", "solve"), NUMBERS)))
@pytest.mark.filterwarnings("ignore")
def test_zero_and_non_finite_scales_agree_with_upstream(rule, number):
    out = cholesky(s * K).sum() if rule == "factor" else squares(s * L)
    off, on = (
        evaluated(out, VALUES | {s: np.array(number)}, on=on, gradient=False)
        for on in (False, True)
    )
    # Of an infinite matrix LAPACK has a diagonal that is infinite.
    expected = [np.nan] if (rule, number) == ("factor", np.inf) else off
    assert np.isfinite(off).all() == np.isfinite(on).all()
    np.testing.assert_allclose(on, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "build",
    [
        lambda s, _: log_det(s * K.astype("float32")),
        lambda s, b: squares(s * L.astype("float32"), b),
    ],
)
def test_single_precision_agrees(build):
    of_32 = [pt.scalar("s32", dtype="float32"), pt.vector("b32", shape=(N,), dtype="float32")]
    out = build(*of_32)
    values = dict(zip(of_32, (np.float32(0.7), VALUES[b].astype("float32")), strict=True))
    rewritten = pregrad(out, on=True)
    assert not nodes_of(rewritten, Cholesky)
    assert solves_as_it_is(rewritten)
    off, on = (evaluated(out, values, on=on) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("n_zero", [0, 1, 2])
@pytest.mark.parametrize("right", [b, columns])
def test_a_row_of_zeros_makes_all_of_a_solution_nan(n_zero, right):
    """The entries of the solution may be read one by one, also entries before that row."""
    solution = solve_triangular(v[:, None] * L, right, lower=True, b_ndim=right.type.ndim)
    scales = np.where(np.arange(N) == n_zero, 0.0, 1.0)
    off, on = (
        evaluated(solution, VALUES | {v: scales}, on=on, gradient=False) for on in (False, True)
    )
    assert solves_as_it_is(pregrad(solution, on=True))
    assert np.isnan(off).all()
    assert np.isnan(on).all()


@pytest.mark.parametrize("parameter", ["cov", "tau", "chol"])
def test_known_covariance_is_factored_once(parameter):
    scaled = {"cov": lambda x: x**2 * K, "tau": lambda x: x * K, "chol": lambda x: x * L}
    with pm.Model() as model:
        scale, mu = pm.HalfNormal("scale"), pm.Normal("mu", shape=N)
        pm.MvNormal("y", mu, **{parameter: scaled[parameter](scale)}, observed=np.ones((5, N)))
    assert not nodes_of(pregrad(model.logp(), on=True), Cholesky)
    assert pymc_fastlogp.verify(model)
