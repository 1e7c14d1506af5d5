"""``log(a * exp(x) * s)`` becomes ``log(a) + x + log(s)``: the products that are split, and the error against 40 digits."""

import mpmath
import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.rewrites.conftest import (
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    inputs_of,
    pregrad,
    sketch,
    value_and_gradient,
)

RULE = "fastlogp_log_of_product"

x, z = (pt.vector(name, shape=(6,)) for name in "xz")
v, w = (pt.vector(name, shape=(3,)) for name in "vw")
X = pt.matrix("X", shape=(3, 6))
s, u = pt.scalar("s"), pt.scalar("u")
f = pt.vector("f", shape=(6,), dtype="float32")
a = pt.constant(np.array([0.1, 1.0, 2.0, 3.5, 20.0, 1e6]))
n = pt.constant(np.array([1, 2, 3, 4, 5, 6]))
g = pt.constant(np.array([0, 2, 1, 1, 0, 2]))
VALUES = {
    x: np.array([-1.5, 0.0, 2.5, 30.0, -40.0, 0.3]),
    z: np.array([0.2, -3.0, 1.0, 5.0, 2.0, -0.7]),
    v: np.array([-0.4, 1.2, 3.0]),
    w: np.array([0.5, -2.0, 0.1]),
    X: np.linspace(-3, 3, 18).reshape(3, 6),
    s: np.array(0.7),
    u: np.array(-1.3),
    f: np.linspace(-2, 2, 6, dtype="float32"),
}
log_a, log_n = pt.constant(np.log(a.data)), pt.constant(np.log(n.data))
column = pt.expand_dims(v, 1)
exp_matrix, exp_vector = pt.exp(X), pt.exp(v)
softmax = exp_matrix / exp_matrix.sum(axis=1, keepdims=True)


def limited(logs, product):
    return logs + pt.switch(
        pt.le(product, 0), -np.inf, pt.switch(pt.lt(product, np.inf), 0.0, np.inf)
    )


PRODUCTS = {
    "constants": (a * pt.exp(x), log_a + x),
    "integers": (n * pt.exp(x), log_n + x),
    "scalar": (pt.exp(x) * abs(s), x + pt.log(pt.expand_dims(abs(s), 0))),
    "gathered": (a * pt.exp(v)[g], log_a + v[g]),
    "two gathered": (a * pt.exp(v)[g] * pt.exp(w)[g], log_a + v[g] + w[g]),
    "gathered product": (a * (pt.exp(v) * abs(w))[g], log_a + (v + pt.log(abs(w)))[g]),
    "product that is gathered": ((pt.exp(v) * abs(w))[g], (v + pt.log(abs(w)))[g]),
    "table that is no exponential": (a * abs(v)[g], log_a + pt.log(abs(v))[g]),
    "quotient": (a * pt.exp(x) / abs(s), log_a + x - pt.log(pt.expand_dims(abs(s), 0))),
    "exponential of a quotient": (pt.exp(x) / abs(s), x - pt.log(pt.expand_dims(abs(s), 0))),
    "exponential by the sum of others": (
        pt.exp(x) / pt.exp(z).sum(),
        x - pt.log(pt.expand_dims(pt.exp(z).sum(), 0)),
    ),
    "outer": (pt.exp(column) * abs(z), column + pt.log(pt.expand_dims(abs(z), 0))),
}
FIRES = {
    name: (pt.log(product), limited(logs, product)) for name, (product, logs) in PRODUCTS.items()
}
FIRES["quotient of exponentials"] = (pt.log(pt.exp(x) / pt.exp(z)), x - z)
FIRES["product of entries of exponentials"] = (pt.log(pt.exp(v)[g] * pt.exp(w)[g]), v[g] + w[g])
FIRES["entries of an exponential"] = (
    pt.log(pt.exp(v)[g]) * pt.exp(v).sum(),
    v[g] * pt.exp(v).sum(),
)
FIRES["exponential of a number that is read elsewhere, too"] = (
    pt.log(pt.exp(x) * pt.exp(s)) * pt.exp(s),
    (x + s) * pt.exp(s),
)
REFUSES = {
    "as long as the product": pt.log(a * x**2),
    "may be negative": pt.log(pt.exp(x) * s),
    "negative constant": pt.log(pt.constant(-a.data) * pt.exp(x)),
    "a sum beside it": pt.log(pt.exp(x) * (1 + z**2)),
    "no product": pt.log(1 + pt.exp(x)),
    "one scalar": pt.log(s**2 * u**2),
    "integers alone": pt.log(n * pt.ivector("k") ** 2),
    "quotient, which PyTensor splits": pt.log(a / abs(v)[g]),
    "entries of a softmax": pt.log(softmax[:, g]).sum() + softmax[0, 0],
    "softmax over all": pt.log((exp_vector / exp_vector.sum())[g]),
    "quotient by what is as long": pt.log(pt.exp(x) / z**2),
    "quotient by what may be negative": pt.log(pt.exp(x) / s),
    "unknown length": pt.log(a * pt.vector("open") ** 2),
    "unknown length of an exponential": pt.log(pt.exp(pt.vector("open")) * abs(s)),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    before, after = FIRES[name]
    assert_rewritten(before, after)
    assert pregrad(before, on=True).type == pregrad(before, on=False).type


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    assert_same_value_and_gradient(FIRES[name][0], VALUES, rtol=1e-13)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


def test_dtype_is_kept():
    narrow = pt.log(pt.exp(f) * pt.constant(a.data.astype("float32")))
    found = pregrad(narrow, on=True)
    assert found.type == narrow.type
    assert "Log" not in sketch(found)
    # Of a factor of another precision than the product the logarithm would be as coarse as the factor.
    assert_left_alone(pt.log(a * abs(pt.vector("h", shape=(3,), dtype="float32"))[g]), RULE)


@given(
    e=st.floats(1e-300, 1e300),
    exponent=st.floats(-700, 700),
    scale=st.floats(1e-300, 1e300),
)
def test_digits(e, exponent, scale):
    """The error against 40 digits is at most four units in the last place of the largest logarithm."""
    assume(0 < e * np.exp(exponent) * scale < np.inf)
    product = pt.log(pt.constant(np.full(6, e)) * pt.exp(x) * abs(s))
    values = {x: np.full(6, exponent), s: np.array(scale)}
    found = value_and_gradient(product, inputs_of(product, values), on=True)[0]
    with mpmath.workdps(40):
        logs = [mpmath.log(e), mpmath.mpf(exponent), mpmath.log(scale)]
        exact, size = mpmath.fsum(logs), max(map(abs, logs))
    np.testing.assert_allclose(found, float(exact), rtol=0, atol=4 * 2**-52 * float(size) + 1e-300)


@pytest.mark.parametrize(
    ("constant", "exponent"),
    [(0.0, 1.0), (1.0, -np.inf), (np.inf, 1.0), (0.0, np.inf), (2.0, np.nan), (np.nan, 1.0)],
)
def test_limits_of_a_factor(constant, exponent):
    out = pt.log(pt.constant(np.full(6, constant)) * pt.exp(x))
    values = inputs_of(out, {x: np.full(6, exponent)})
    off, on = (value_and_gradient(out, values, on=on)[0] for on in (False, True))
    np.testing.assert_array_equal(off, on)


def test_exponentials_that_overflow_alone():
    out = pt.log(pt.exp(x) * pt.exp(z))
    found, *gradient = value_and_gradient(
        out, inputs_of(out, {x: np.full(6, 800.0), z: np.full(6, -900.0)}), on=True
    )
    np.testing.assert_array_equal(found, np.full(6, -100.0))
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize(("constant", "exponent"), [(1e-300, -500.0), (1e300, 500.0)])
def test_product_of_finite_factors_has_no_limits(constant, exponent):
    out = pt.log(pt.constant(np.full(6, constant)) * pt.exp(x))
    values = {x: np.full(6, exponent)}
    off, on = (value_and_gradient(out, values, on=on)[0] for on in (False, True))
    assert np.all(np.isinf(off))
    np.testing.assert_array_equal(off, on)


@pytest.mark.parametrize("at", [0.0, -0.0])
@pytest.mark.parametrize(
    "out",
    [
        pt.log(2.5 * pt.exp(x) / pt.sqrt(s)),
        pt.log(a * pt.exp(v)[g] / pt.sqrt(s)),
        pt.log((pt.exp(v) / pt.sqrt(s))[g] * pt.exp(x)),
    ],
)
def test_division_by_a_zero_of_either_sign(out, at):
    values = inputs_of(out, VALUES | {s: np.array(at)})
    off, on = (value_and_gradient(out, values, on=on)[0] for on in (False, True))
    assert sketch(pregrad(out, on=True)) != sketch(pregrad(out, on=False))
    np.testing.assert_array_equal(off, np.full(6, np.nan if np.signbit(at) else np.inf))
    np.testing.assert_array_equal(on, off)


def test_entries_of_a_softmax_that_underflow():
    exponentials = pt.exp(v - pt.max(v))
    out = pt.log((exponentials / exponentials.sum())[g])
    values = inputs_of(out, {v: np.array([-900.0, 0.0, -2000.0])})
    off, on = (value_and_gradient(out, values, on=on) for on in (False, True))
    np.testing.assert_array_equal(on[0], np.array([-900.0, 0.0, -2000.0])[g.data])
    for found, expected in zip(on, off, strict=True):
        np.testing.assert_array_equal(found, expected)
