"""A precision that PyMC made a scale of, and a precision again, is the precision itself."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import ParameterValueError

from tests.rewrites.conftest import (
    PYTHON,
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    pregrad,
    sketch,
)

RULE = "fastlogp_precision_of_scale"

x, y = (pt.vector(name, shape=(5,)) for name in "xy")
empty, one = pt.vector("empty", shape=(0,)), pt.vector("one", shape=(1,))
f = pt.vector("f", shape=(5,), dtype="float32")
k = pt.vector("k", shape=(5,), dtype="int64")
s, n = pt.scalar("s"), pt.lscalar("n")
VALUES = {
    x: np.array([0.3, -2.0, 1e-5, -300.0, 7.5]),
    y: np.array([1.0, -0.5, 2.0, 3.0, -1.0]),
    empty: np.empty(0),
    one: np.array([0.7]),
    s: np.array(-1.3),
}


def scale(tau, power=-0.5):
    return pt.abs(tau) ** power * pt.sign(tau)


def precision(sigma, power=-2.0):
    return sigma**power * pt.sign(sigma)


FIRES = {
    "vector": (precision(scale(x)), x),
    "scalar": (precision(scale(s)), s),
    "no entries": (precision(scale(empty)), empty),
    "one entry": (precision(scale(one)), one),
    "exponential": (precision(scale(pt.exp(x))), pt.exp(x)),
    "beside others": (y * precision(scale(x)) * s, y * x * pt.expand_dims(s, 0)),
    "sign first": (pt.sign(scale(x)) * scale(x) ** -2.0, x),
}
REFUSES = {
    "another power of the precision": precision(scale(x, -1.5)),
    "another power of the scale": precision(scale(x), -4.0),
    "no sign of the scale": scale(x) ** -2.0,
    "the sign of another scale": scale(x) ** -2.0 * pt.sign(scale(y)),
    "the sign of another precision": precision(pt.abs(x) ** -0.5 * pt.sign(y)),
    "a root of what may be negative": precision(x**-0.5 * pt.sign(x)),
    "a scale with another factor": precision(pt.abs(x) ** -0.5 * pt.sign(x) * y),
    "exponents as many as only the call knows": scale(one) ** pt.alloc(-2.0, n)
    * pt.sign(scale(one)),
    "roots as many as only the call knows": precision(
        pt.abs(one) ** pt.alloc(-0.5, n) * pt.sign(one)
    ),
    "narrow floats": precision(scale(f)),
    "integers": precision(scale(k)),
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


value = pt.vector("value", shape=(5,))
returns = pm.logp(pm.StudentT.dist(nu=3.0, lam=x, shape=(5,)), value)


def test_student_t_uses_the_precision_of_the_user():
    assert "Sign" in sketch(pregrad(returns, on=False))
    assert "Sign" not in sketch(pregrad(returns, on=True))
    at = VALUES | {x: np.array([0.3, 2.0, 1e-200, 1e200, 7.5]), value: np.linspace(-2, 2, 5)}
    assert_same_value_and_gradient(returns, at, rtol=1e-13)


@pytest.mark.parametrize("tau", [0.0, -3.0, np.nan])
@pytest.mark.parametrize("on", [False, True])
def test_non_positive_precision_is_impossible(tau, on):
    at = {x: np.array([1.0, 2.0, tau, 0.5, 1.5]), value: np.zeros(5)}
    with np.errstate(all="ignore"), pytest.raises(ParameterValueError, match="lam > 0"):
        pregrad(returns, on=on).eval(at, mode=PYTHON)
