"""Solves of all rows of a matrix with one triangle become one solve of the transpose before the gradient."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.traversal import ancestors, apply_ancestors
from pytensor.tensor.linalg.decomposition.cholesky import cholesky
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular, solve_triangular

import pymc_fastlogp
from pymc_fastlogp.decisions import collected
from tests.rewrites.conftest import assert_left_alone, inputs_of, pregrad, with_gradients
from tests.slices import examples

RULE = "fastlogp_solve_of_rows"
N, ROWS = 3, 5
RNG = np.random.default_rng(0)

factor = pt.matrix("factor", shape=(N, N))
factors = pt.tensor3("factors", shape=(ROWS, N, N))
rows = pt.matrix("rows", shape=(ROWS, N))
open_rows = pt.matrix("open_rows")
vector = pt.vector("vector", shape=(N,))
stack = pt.tensor3("stack", shape=(2, ROWS, N))
VALUES = {
    factor: np.tril(RNG.normal(size=(N, N))) + 3 * np.eye(N),
    factors: np.tril(RNG.normal(size=(ROWS, N, N))) + 3 * np.eye(N),
    rows: RNG.normal(size=(ROWS, N)),
    open_rows: RNG.normal(size=(4, N)),
    vector: RNG.normal(size=N),
    stack: RNG.normal(size=(2, ROWS, N)),
}


def solve(a, b, **options):
    return solve_triangular(a, b, **{"lower": True, "b_ndim": 1, **options})


def loss(x):
    return pt.sqr(pt.tanh(x)).sum()


FIRES = {
    "of a matrix": loss(solve(factor, rows)),
    "with an axis that PyMC adds": loss(solve(factor[None], rows)),
    "of an open number of rows": loss(solve(factor, open_rows)),
    "of one row": loss(solve(factor, vector[None])),
    "of two axes of rows": loss(solve(factor[None, None], stack)),
    "by the upper triangle": loss(solve(factor.T, rows, lower=False)),
    "by a unit triangle": loss(solve(factor, rows, unit_diagonal=True)),
    "by the factor of a covariance": loss(solve(cholesky(factor @ factor.T), rows)),
}
REFUSES = {
    "a vector": loss(solve(factor, vector)),
    "a matrix as it is": loss(solve(factor, rows.T, b_ndim=2)),
    "a factor for each row": loss(solve(factors, rows)),
    "the factor of an inverse": loss(solve(cholesky(pt.linalg.inv(factor @ factor.T)), rows)),
}


def dims_of_solves(out):
    ops = [getattr(node.op, "core_op", node.op) for node in apply_ancestors([out])]
    return {op.b_ndim for op in ops if isinstance(op, SolveTriangular)}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    out = FIRES[name]
    assert dims_of_solves(pregrad(out, on=False)) == {1}
    assert dims_of_solves(pregrad(out, on=True)) == {2}


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    inputs = inputs_of(FIRES[name], VALUES)
    off, on = (
        with_gradients(FIRES[name], [*inputs], on=on, mode="FAST_COMPILE") for on in (False, True)
    )
    for found, expected in zip(on(*inputs.values()), off(*inputs.values()), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


def test_gradient_has_no_outer_product_per_row():
    largest = {}
    for on in (False, True):
        gradient = pytensor.grad(pregrad(loss(solve(factor, rows)), on=on), factor)
        largest[on] = max(x.type.ndim for x in ancestors([gradient]) if hasattr(x.type, "ndim"))
    assert largest == {False: 3, True: 2}


@settings(max_examples=examples(10, 100))
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_any_lengths_agree(n, n_rows, seed):
    rng = np.random.default_rng(seed)
    a, b = pt.matrix("a"), pt.matrix("b")
    point = np.tril(rng.normal(size=(n, n))) + 2 * np.eye(n), rng.normal(size=(n_rows, n))
    out = loss(solve(a, b))
    off, on = (
        with_gradients(out, [a, b], on=on, mode="FAST_COMPILE")(*point) for on in (False, True)
    )
    for found, expected in zip(on, off, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_rule_fires_on_a_multivariate_normal():
    with pm.Model() as model:
        mu = pm.Normal("mu", shape=N)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=N, eta=2.0, sd_dist=pm.HalfNormal.dist())
        pm.MvNormal("y", mu, chol=chol, observed=VALUES[rows])
    with collected() as decisions:
        assert pymc_fastlogp.verify(model)
    assert RULE in {decision.rule for decision in decisions if decision.fired}


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_nan_row_leaves_the_others_alone(bad):
    x = VALUES[rows].copy()
    x[1, 0] = bad
    off, on = (
        pytensor.function([factor, rows], pregrad(solve(factor, rows), on=on), mode="FAST_COMPILE")(
            VALUES[factor], x
        )
        for on in (False, True)
    )
    np.testing.assert_allclose(on, off, rtol=1e-13)
    assert np.isfinite(np.delete(on, 1, axis=0)).all()
