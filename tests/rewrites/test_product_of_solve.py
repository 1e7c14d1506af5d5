"""The product of a triangle and the solution of a system with this triangle is the right-hand side."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.tensor.linalg.decomposition.cholesky import cholesky
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular, solve_triangular
from pytensor.tensor.math import Dot

from tests.rewrites.conftest import (
    assert_left_alone,
    inputs_of,
    nodes_of,
    pregrad,
    with_gradients,
)

RULE = "fastlogp_product_of_solve"
N, COLUMNS = 3, 7
RNG = np.random.default_rng(0)

matrix = pt.matrix("matrix", shape=(N, N))
packed = pt.vector("packed", shape=(N * (N + 1) // 2,))
b = pt.matrix("b", shape=(N, COLUMNS))
mean = pt.vector("mean", shape=(N,))
VALUES = {
    matrix: np.tril(RNG.normal(size=(N, N))) + 3 * np.eye(N),
    packed: np.array([2.0, 0.3, 1.5, -0.4, 0.2, 1.0]),
    b: RNG.normal(size=(N, COLUMNS)),
    mean: RNG.normal(size=N),
}
factor = pt.zeros((N, N))[np.tril_indices(N)].set(packed)
covariance_factor = cholesky(matrix @ matrix.T)


def solve(a, right, **options):
    return solve_triangular(a, right, **{"lower": True, "b_ndim": 2, **options})


def loss(x):
    return pt.sqr(pt.tanh(x)).sum()


FIRES = {
    "columns": loss(factor @ solve(factor, b)),
    "rows": loss(solve(factor, b).T @ factor.T),
    "a Cholesky factor": loss(covariance_factor @ solve(covariance_factor, b)),
    "a single column": loss(factor @ solve(factor, b[:, :1])),
    "no column": loss(factor @ solve(factor, b[:, :0])),
    "around a mean": loss(mean + (factor @ solve(factor, b - mean[:, None])).T),
}
REFUSES = {
    "entries above the diagonal": loss(matrix @ solve(matrix, b)),
    "another triangle": loss((2.0 * factor) @ solve(factor, b)),
    "the transposed triangle": loss(factor.T @ solve(factor, b)),
    "a unit diagonal": loss(factor @ solve(factor, b, unit_diagonal=True)),
    "the upper triangle": loss(factor @ solve(factor, b, lower=False)),
    "the solution on the left": loss(solve(factor, factor) @ factor),
}


@pytest.mark.parametrize("name", FIRES)
def test_no_product_and_no_solve_is_left(name):
    rewritten = pregrad(FIRES[name], on=True)
    assert not nodes_of(rewritten, SolveTriangular)
    assert not nodes_of(rewritten, Dot)


def test_mean_cancels():
    rewritten = pregrad(FIRES["around a mean"], on=True)
    assert {*inputs_of(rewritten, dict.fromkeys(VALUES))} == {b}


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
