"""A product with a matrix whose rows are Kronecker products is computed from the factors."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.tensor.math import Dot

from pymc_fastlogp.rewrites.linalg import row_kronecker
from tests.conftest import PYTHON
from tests.rewrites.conftest import (
    assert_left_alone,
    assert_same_value_and_gradient,
    nodes_of,
    pregrad,
)

NAME = "fastlogp_row_kronecker"
N, P, Q = 60, 9, 12
rng = np.random.default_rng(0)
A, B = rng.normal(size=(N, P)), rng.normal(size=(N, Q))
w = pt.vector("w", shape=(P * Q,))


def kronecker(a, b):
    return (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)


X = kronecker(A, B)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(row_kronecker, "FEWEST_ENTRIES", 1000)
    monkeypatch.setattr(row_kronecker, "FEWEST_WITH_REPEATS", 1000)


def largest_matrix(out):
    """Return the number of entries of the largest constant."""
    constants = [x for x in ancestors([out]) if x.owner is None and hasattr(x, "data")]
    return max(np.size(x.data) for x in constants)


ZEROS = A.copy()
ZEROS[3], ZEROS[:, 4] = 0, 0
FACTORED = {
    "product": X,
    "rows and columns of zeros": kronecker(ZEROS, B),
    "Fortran order": np.asfortranarray(X),
    "scaled columns": kronecker(A * 1e100, B * 1e-120),
    "sorted by the second factor": kronecker(B, A),
}


@pytest.mark.parametrize("name", FACTORED)
def test_factors_replace_the_matrix(name):
    out = pt.exp(pt.tanh(pt.dot(FACTORED[name], w)))
    assert largest_matrix(pregrad(out, on=True)) == N * max(P, Q)
    assert_same_value_and_gradient(out, {w: rng.normal(size=P * Q) / 10}, rtol=1e-9)


def test_product_from_the_left_is_rewritten():
    assert largest_matrix(pregrad(pt.exp(w @ pt.constant(X).T), on=True)) == N * max(P, Q)


U, V = rng.normal(size=(5, P)), rng.normal(size=(6, Q))
OF_U, OF_V = rng.integers(5, size=N), rng.integers(6, size=N)
REPEATED = {
    "first factor": (kronecker(U[OF_U], B), (5, P), N * Q),
    "second factor": (kronecker(A, V[OF_V]), (6, Q), N * P),
    "both factors": (kronecker(U[OF_U], V[OF_V]), (5, P), 6 * Q),
    "both factors in order of a grid": (
        kronecker(np.repeat(U, 6, 0), np.tile(V, (5, 1))),
        (5, P),
        6 * Q,
    ),
}


@pytest.mark.parametrize("name", REPEATED)
def test_repeated_rows_of_factors_are_multiplied_once(name):
    x, shape, largest = REPEATED[name]
    out = pt.exp(pt.tanh(pt.dot(x, w)))
    rewritten = pregrad(out, on=True)
    assert largest_matrix(rewritten) == largest
    [table] = [
        x.data
        for node in nodes_of(rewritten, Dot)
        for x in node.inputs
        if isinstance(x, Constant) and x.data.shape == shape
    ]
    assert np.linalg.matrix_rank(table) == min(shape)
    assert_same_value_and_gradient(out, {w: rng.normal(size=P * Q) / 10}, rtol=1e-9)


def test_a_small_matrix_is_split_only_if_rows_of_its_factors_repeat(monkeypatch):
    monkeypatch.setattr(row_kronecker, "FEWEST_ENTRIES", X.size + 1)
    repeated, _, _ = REPEATED["both factors"]
    assert largest_matrix(pregrad(pt.exp(pt.dot(repeated, w)), on=True)) < X.size
    assert_left_alone(pt.exp(pt.dot(X, w)), NAME)


def test_rows_that_nearly_repeat_stay_distinct():
    near = U[OF_U] * (1 + 1e-13 * rng.normal(size=(N, P)))
    factors = row_kronecker.row_factors(kronecker(near, B))
    assert len(factors.a.rows) == N


def test_three_factors_are_split():
    """A product of three factors becomes the product of one factor with the others."""
    c = rng.normal(size=(N, 8))
    b = pt.vector("b", shape=(8 * 8 * P,))
    out = pt.exp(pt.dot(kronecker(kronecker(c, c[::-1]), A), b) / 100)
    assert largest_matrix(pregrad(out, on=True)) < N * 8 * 8 * P
    assert_same_value_and_gradient(out, {b: rng.normal(size=8 * 8 * P)}, rtol=1e-10)


def test_hilbert_space_basis_is_split():
    with pm.Model() as model:
        cov = pm.gp.cov.ExpQuad(2, ls=[1.0, 2.0])
        f = pm.gp.HSGP(m=[9, 12], c=1.5, cov_func=cov).prior("f", X=rng.normal(size=(N, 2)))
        pm.Poisson("y", pt.exp(f), observed=rng.poisson(1, N))
    assert largest_matrix(pregrad(model.logp(), on=True)) == N * 12


WRONG, NOT_FINITE, NOT_A_NUMBER = X.copy(), X.copy(), X.copy()
WRONG[-1, 5] *= 1 + 1e-14
NOT_FINITE[30, 7] = np.inf
NOT_A_NUMBER[30, 7] = np.nan
REFUSED = {
    "another entry": (WRONG, w),
    "an infinite entry": (NOT_FINITE, w),
    "an entry that is NaN": (NOT_A_NUMBER, w),
    "rows of their own": (rng.normal(size=X.shape), w),
    "a column left out": (X[:, 1:], w[1:]),
    "standardized columns": (X - X.mean(axis=0), w),
    "narrow factors": (kronecker(A[:, :4], B), w[: 4 * Q]),
    "few entries": (X[:9], w),
    "single precision": (X.astype("float32"), w),
    "integers": (np.ones(X.shape, dtype=int), w),
    "coefficients of unknown length": (X, pt.vector("v")),
    "a matrix of coefficients": (X, pt.matrix("W", shape=(P * Q, 2))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name):
    x, coefficients = REFUSED[name]
    assert_left_alone(pt.exp(pt.dot(x, coefficients)), NAME)


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([8, 9, 16]),
    st.sampled_from([8, 11, 20]),
    st.tuples(st.integers(1, 20), st.integers(1, 20)),
)
def test_factors_of_any_product(seed, p, q, n_distinct):
    random = np.random.default_rng(seed)
    a, b = (
        (random.normal(size=(n, k)) * random.integers(0, 3, size=(n, k)))[
            random.integers(n, size=20)
        ]
        for n, k in zip(n_distinct, (p, q))
    )
    x = kronecker(a, b)
    factors = row_kronecker.row_factors(x)
    assert factors is not None
    for each in (factors, factors.exchanged().exchanged()):
        found = each.scale[:, None] * kronecker(each.a.repeated(), each.b.repeated())
        np.testing.assert_allclose(found, x, rtol=4 * row_kronecker.RTOL)
    b = random.normal(size=p * q)
    matrix = b.reshape(factors.a.rows.shape[1], factors.b.rows.shape[1])
    product = factors.times(pt.constant(matrix)).eval(mode=PYTHON)
    np.testing.assert_allclose(product, x @ b, rtol=0, atol=1e-13 * (abs(x) @ abs(b)).max())
