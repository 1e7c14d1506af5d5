"""The diagonal of a matrix product is computed without the other entries."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.tensor.math import Dot

from tests.rewrites.conftest import (
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    nodes_of,
    pregrad,
    with_gradients,
)

RULE = "fastlogp_diag_of_product"
N, M = 3, 4

a = pt.matrix("a", shape=(N, M))
b = pt.matrix("b", shape=(M, N))
single, other_single = pt.fmatrix("single", shape=(N, M)), pt.fmatrix("other_single", shape=(M, N))
wide = pt.matrix("wide", shape=(M, N + 1))
long, tall = pt.matrix("long"), pt.matrix("tall")
whole = pt.lmatrix("whole", shape=(N, N))
of_whole = pt.lmatrix("of_whole")
batch = pt.tensor3("batch", shape=(2, N, N))

VALUES = {
    a: np.linspace(-1.0, 2.0, N * M).reshape(N, M),
    b: np.linspace(0.5, 3.0, N * M).reshape(M, N),
    single: np.linspace(-1.0, 2.0, N * M, dtype="float32").reshape(N, M),
    other_single: np.linspace(0.5, 3.0, N * M, dtype="float32").reshape(M, N),
    wide: np.linspace(-2.0, 1.0, M * (N + 1)).reshape(M, N + 1),
    long: np.linspace(-1.0, 2.0, 5 * M).reshape(5, M),
    tall: np.linspace(-1.0, 2.0, M * 5).reshape(M, 5),
}


def by_rows(left, right):
    """The diagonal of a product whose lengths are unknown."""
    n = pt.minimum(left.shape[0], right.shape[1])
    return (left[:n] * right[:, :n].T).sum(axis=1)


FIRES = {
    "product": (pt.diagonal(a @ b), (a * b.T).sum(axis=1)),
    "product that is needed too": (
        pt.diagonal(a @ b) * (a @ b),
        (a * b.T).sum(axis=1) * (a @ b),
    ),
    "trace": (pt.trace(a @ b), (a * b.T).sum(axis=1).sum()),
    "single precision": (
        pt.diagonal(single @ other_single),
        (single * other_single.T).sum(axis=1),
    ),
    "unknown lengths": (pt.diagonal(long @ tall), by_rows(long, tall)),
    "one unknown length": (pt.diagonal(long @ b), by_rows(long, b)),
    "gram of unknown length": (pt.diagonal(long @ long.T), pt.sqr(long).sum(axis=1)),
    "gram of a transpose": (pt.diagonal(tall.T @ tall), pt.sqr(tall.T).sum(axis=1)),
}

REFUSES = {
    "another diagonal": pt.diagonal(a @ b, offset=1),
    "not square": pt.diagonal(a @ wide),
    "gram of known shape": pt.diagonal(a @ a.T),
    "gram of a transpose of known shape": pt.diagonal(a.T @ a),
    "sum": pt.diagonal(a @ b + 1),
    "integers": pt.diagonal(whole @ whole),
    "integers of unknown length": pt.diagonal(of_whole @ of_whole),
    "batch": pt.diagonal(batch @ batch, axis1=1, axis2=2),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name], RULE)


@pytest.mark.parametrize(
    ("name", "rtol"),
    [
        ("product", 1e-14),
        ("product that is needed too", 1e-14),
        ("trace", 1e-14),
        ("single precision", 1e-6),
    ],
)
def test_value_and_gradient(name, rtol):
    assert_same_value_and_gradient(FIRES[name][0], VALUES, rtol=rtol)


@pytest.mark.parametrize(
    ("left", "right", "n", "m"),
    [(5, 5, 4, 4), (2, 5, 4, 4), (5, 2, 1, 1), (0, 3, 4, 4), (3, 3, 0, 0)],
)
def test_lengths_that_are_known_at_run_time(left, right, n, m):
    """The product need not be square, and may have no terms."""
    out = pt.diagonal(long @ tall)
    values = [
        np.linspace(-1.0, 2.0, left * n).reshape(left, n),
        np.linspace(0.5, 3.0, m * right).reshape(m, right),
    ]
    off, on = (with_gradients(out.sum(), [long, tall], on=on)(*values) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


def test_gradient_is_finite_where_another_row_is_infinite():
    """PyTensor multiplies the infinity by the zeros off the diagonal."""
    left = VALUES[a].copy()
    left[0] = np.inf
    *_, off = with_gradients(pt.diagonal(a @ b)[1:].sum(), [a, b], on=False)(left, VALUES[b])
    *_, on = with_gradients(pt.diagonal(a @ b)[1:].sum(), [a, b], on=True)(left, VALUES[b])
    np.testing.assert_allclose(on[:, 1:], VALUES[a][1:].T)
    assert np.isnan(off).any()


def test_variances_of_data_of_unknown_length_need_no_square_matrix():
    with pm.Model() as model:
        X = pm.Data("X", np.linspace(-1.0, 1.0, 20).reshape(10, 2))
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
        variance = pt.diag(X @ (chol @ chol.T) @ X.T)
        pm.Normal("y", 0.0, pt.sqrt(1 + variance), observed=pm.Data("y_", np.zeros(10)))
    for on in (False, True):
        graph = pregrad(model.logp(), on=on)
        squares = [n for n in nodes_of(graph, Dot) if n.outputs[0].type.shape == (None, None)]
        assert bool(squares) != on
