"""The Cholesky factor of ``L @ L.T`` is ``L``."""

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.tensor.linalg import cholesky
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky

from tests.rewrites.conftest import (
    PYTHON,
    inputs_of,
    nodes_of,
    pregrad,
    value_and_gradient,
)
from tests.slices import examples

N = 3
ROWS, COLS = np.tril_indices(N)
STRICT = np.tril_indices(N, -1)
DIAG = np.arange(N)
ON_DIAGONAL = np.array([0, 2, 5])

x = pt.vector("x", shape=(6,))
low = pt.vector("low", shape=(3,))
d = pt.vector("d", shape=(N,))
sd = pt.vector("sd", shape=(N,))
full = pt.matrix("full", shape=(N, N))
lows = pt.matrix("lows", shape=(2, 3))

VALUES = {
    x: np.array([0.3, -1.0, 0.1, 0.5, 0.7, -0.4]),
    low: np.array([0.3, -0.5, 0.9]),
    d: np.array([-0.2, 0.1, 0.4]),
    sd: np.array([0.5, -0.1, 0.2]),
    full: np.eye(N) + 0.1,
}

zeros = pt.zeros((N, N))
strict = zeros[STRICT].set(low)


def gram(triangle, **kwargs):
    return cholesky(triangle @ triangle.T, **kwargs)


unit = strict[DIAG, DIAG].set(1.0)
units = pt.zeros((2, N, N))[:, *STRICT].set(lows)[:, DIAG, DIAG].set(1.0)
packed = zeros[ROWS, COLS].set(x[ON_DIAGONAL].set(pt.exp(x[ON_DIAGONAL])))

FIRES = {
    "unit diagonal": gram(unit),
    "log diagonal": gram(strict[DIAG, DIAG].set(pt.exp(d))),
    "packed": gram(packed),
    "scaled": gram(pt.exp(sd)[:, None] * unit),
    "rows of norm one": gram(unit / pt.sqrt((unit**2).sum(axis=1))[:, None]),
    "nan where it fails": gram(unit, on_error="nan"),
    "dummy dimensions": cholesky((unit @ unit.T)[None])[0],
}

REFUSES = {
    "diagonal that may be negative": gram(strict[DIAG, DIAG].set(d)),
    "packed diagonal that may be negative": gram(zeros[ROWS, COLS].set(x)),
    "upper triangle": gram(zeros[COLS, ROWS].set(x**2)),
    "upper factor": gram(unit, lower=False),
    "part of the diagonal": gram(strict[DIAG[1:], DIAG[1:]].set(1.0)),
    "product of two": cholesky(unit @ packed.T),
    "batch": cholesky(units @ units.mT),
    "other order": cholesky(unit.T @ unit),
    "full matrix": gram(full),
    "product with its cumulative sums": cholesky(unit @ pt.cumsum(unit, axis=0)),
    "fill other than zero": gram(pt.ones((N, N))[STRICT].set(low)[DIAG, DIAG].set(1.0)),
}


def evaluate(out, values, *, on):
    return value_and_gradient(out, inputs_of(out, values), on=on)


@pytest.mark.parametrize("name", FIRES)
def test_factorization_is_removed(name):
    assert nodes_of(pregrad(FIRES[name], on=False), Cholesky)
    assert not nodes_of(pregrad(FIRES[name], on=True), Cholesky)


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    off, on = (evaluate(FIRES[name], VALUES, on=on) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert nodes_of(pregrad(REFUSES[name], on=True), Cholesky)


def log_determinant(triangle):
    """Return what a normal distribution does with the factor: check, and take the logs."""
    diagonal = pt.diagonal(gram(triangle, on_error="nan"))
    return pt.switch((diagonal > 0).all(), pt.log(diagonal).sum(), -np.inf)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 1e200])
@pytest.mark.parametrize("variable", [x, low, d, sd])
def test_fails_where_upstream_fails(variable, bad):
    triangles = [packed, strict[DIAG, DIAG].set(pt.exp(d)), pt.exp(sd)[:, None] * unit]
    for triangle in triangles:
        out = log_determinant(triangle)
        values = {v: value.copy() for v, value in VALUES.items()}
        values[variable][1] = bad
        inputs = inputs_of(out, values)
        if variable not in inputs or (variable in (low, x) and bad == 1e200):
            continue  # squares of 1e200 overflow upstream, and are not needed here
        with np.errstate(all="ignore"):
            off, on = (pregrad(out, on=on).eval(inputs, mode=PYTHON) for on in (False, True))
        np.testing.assert_allclose(on, off, rtol=1e-12)


def test_nearly_the_same_variables_keep_their_digits():
    """The factor of the product has lost all digits of a diagonal of 1e-9; the rule has not."""
    values = VALUES | {d: np.array([0.0, np.log(1e-9), 0.0]), low: np.array([1.0, 0.0, 0.0])}
    out = pt.diagonal(gram(strict[DIAG, DIAG].set(pt.exp(d)), on_error="nan"))
    found = pregrad(out, on=True).eval(inputs_of(out, values), mode=PYTHON)
    np.testing.assert_allclose(found, [1.0, 1e-9, 1.0], rtol=1e-14)


@st.composite
def triangles(draw):
    """Draw a triangle packed in any order, with a diagonal that is not negative."""
    n = draw(st.integers(2, 5))
    rows, cols = np.tril_indices(n)
    order = np.array(draw(st.permutations(range(rows.size))))
    rows, cols = rows[order], cols[order]
    v = pt.vector("v", shape=(rows.size,))
    on_diagonal = np.flatnonzero(rows == cols)
    positive = v[on_diagonal].set(draw(st.sampled_from([pt.exp, pt.softplus]))(v[on_diagonal]))
    return pt.zeros((n, n))[rows, cols].set(positive), {v: np.linspace(-1.0, 1.3, rows.size)}


@settings(max_examples=examples(10, 60))
@given(triangles())
def test_any_order_of_packing_agrees(case):
    triangle, values = case
    assert not nodes_of(pregrad(gram(triangle), on=True), Cholesky)
    off, on = (evaluate(gram(triangle), values, on=on) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
