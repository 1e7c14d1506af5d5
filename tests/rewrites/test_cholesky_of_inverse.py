"""A precision matrix is factored itself, its inverse never computed."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.linalg import Cholesky, cholesky, inv, solve_triangular
from pytensor.tensor.linalg.inverse import MatrixInverse

from pymc_fastlogp.rewrites.linalg.cholesky_of_inverse import is_symmetric
from tests.rewrites.conftest import (
    assert_left_alone,
    inputs_of,
    nodes_of,
    pregrad,
    value_and_gradient,
)

N = 4
RULE = "fastlogp_cholesky_of_inverse"

root = pt.matrix("root", shape=(N, N))
lopsided = pt.matrix("lopsided", shape=(N, N))
open_root = pt.matrix("open_root")
rate = pt.scalar("rate")
v = pt.vector("v", shape=(N,))
b = pt.vector("b", shape=(N,))
rows = pt.matrix("rows", shape=(3, N))
NEIGHBORS = np.eye(N, k=1) + np.eye(N, k=-1)
gram = root @ root.T + np.eye(N)
chain = np.diag([2.0, 3.0, 4.0, 5.0]) - rate * NEIGHBORS

rng = np.random.default_rng(0)
VALUES = {
    root: rng.normal(size=(N, N)),
    rate: np.array(0.7),
    v: np.array([0.5, 1.0, 2.0, 3.0]),
    b: rng.normal(size=N),
    rows: rng.normal(size=(3, N)),
}


def factor(precision):
    return cholesky(inv(precision))


def log_det(precision):
    return pt.log(pt.diagonal(factor(precision))).sum()


def squares(precision, x=b):
    return (solve_triangular(factor(precision), x, lower=True, b_ndim=1) ** 2).sum()


FIRES = {
    "solve with a gram": squares(gram),
    "solve with a chain": squares(chain),
    "solve for many": (
        solve_triangular(cholesky(inv(chain)[None]), rows, lower=True, b_ndim=1) ** 2
    ).sum(),
    "diagonal": log_det(chain),
    "scaled and added": log_det(rate * gram + pt.diag(v)),
    "both": squares(gram) + log_det(gram),
}

REFUSES = {
    "a factor that is broadcast later": squares(chain, rows),
    "not known to be symmetric": squares(lopsided),
    "a vector in the place of a matrix": squares(gram + v),
    "upper factor": (solve_triangular(cholesky(inv(gram), lower=False), b, lower=False) ** 2).sum(),
    "lower triangle of the upper factor": solve_triangular(
        cholesky(inv(gram), lower=False), b, lower=True, b_ndim=1
    ).sum(),
    "other diagonal, of open length": pt.diagonal(factor(open_root @ open_root.T), offset=-1).sum(),
    "solve with columns": (solve_triangular(factor(gram), rows.T, lower=True, b_ndim=2)).sum(),
    "the upper triangle is not there": (
        solve_triangular(factor(gram), b, lower=False, b_ndim=1).sum()
    ),
    "unit diagonal": solve_triangular(
        factor(gram), b, lower=True, unit_diagonal=True, b_ndim=1
    ).sum(),
    "factor that is needed too": log_det(gram) + factor(gram).sum(),
    "solve of the factor itself": log_det(gram) + squares(gram, factor(gram)),
    "other diagonal": pt.diagonal(factor(gram), offset=-1).sum(),
}


def evaluated(out, values, *, on):
    return value_and_gradient(out, inputs_of(out, values), on=on)


@pytest.mark.parametrize("name", FIRES)
def test_inverse_is_removed(name):
    assert nodes_of(pregrad(FIRES[name], on=False), MatrixInverse)
    found = pregrad(FIRES[name], on=True)
    assert not nodes_of(found, MatrixInverse)
    assert len(nodes_of(found, Cholesky)) == 1


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    off, on = (evaluated(FIRES[name], VALUES, on=on) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


@pytest.mark.parametrize("value", [3.0, -3.0, np.nan, np.inf])
def test_nan_where_the_precision_is_not_positive_definite(value):
    values = {**VALUES, rate: np.array(value)}
    with np.errstate(all="ignore"):
        off, on = (evaluated(FIRES["diagonal"], values, on=on)[0] for on in (False, True))
    assert np.isnan(off)
    assert np.isnan(on)


def test_an_ill_conditioned_precision_keeps_its_digits():
    """Against 40 digits, of a quadratic form of which the inverse leaves half."""
    import mpmath

    near = 1 - 1e-9
    precision = np.diag(np.ones(N)) - pt.as_tensor(rate) * (np.ones((N, N)) - np.eye(N)) * -1
    values = {rate: np.array(near), b: VALUES[b]}
    expected = _exact_squares(near, VALUES[b], mpmath)
    [off], [on] = (evaluated(squares(precision), values, on=x)[:1] for x in (False, True))
    assert abs(on - expected) < 1e-13 * expected
    assert abs(on - expected) <= abs(off - expected)


def _exact_squares(near, x, mpmath):
    with mpmath.workdps(40):
        matrix = mpmath.matrix(N, N)
        for i in range(N):
            for j in range(N):
                matrix[i, j] = mpmath.mpf(1) if i == j else mpmath.mpf(near)
        column = mpmath.matrix([mpmath.mpf(float(entry)) for entry in x])
        return float((column.T * matrix * column)[0])


@pytest.mark.parametrize("likelihood", ["one row", "many rows"])
def test_mv_normal_by_precision_has_no_inverse(likelihood):
    y = VALUES[b] if likelihood == "one row" else VALUES[rows]
    with pm.Model() as model:
        strength = pm.Uniform("strength", 0, 1)
        tau = np.diag([2.0, 3.0, 4.0, 5.0]) - strength * NEIGHBORS
        pm.MvNormal("y", np.zeros(N), tau=tau, observed=y)
    [value] = model.continuous_value_vars
    assert not nodes_of(pregrad(model.logp(), on=True), MatrixInverse)
    off, on = (
        value_and_gradient(model.logp(), {value: np.array(0.3)}, on=x) for x in (False, True)
    )
    np.testing.assert_allclose(on, off, rtol=1e-13)


def test_symmetry_follows_from_construction():
    yes = [gram, chain, pt.diag(v), pt.exp(gram), gram * rate, pt.as_tensor(NEIGHBORS)]
    no = [
        lopsided,
        gram + v,
        gram * v[:, None],
        pt.diag(v, k=1)[:-1, 1:],
        pt.as_tensor(np.triu(NEIGHBORS)),
    ]
    graph = FunctionGraph(outputs=[pregrad(x, on=False) for x in (*yes, *no)], clone=False)
    found = [is_symmetric(graph, x) for x in graph.outputs]
    assert found == [True] * len(yes) + [False] * len(no)
