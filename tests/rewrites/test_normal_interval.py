"""Differences of normal probabilities: graph, value, gradient, digits against mpmath, refusals."""

import mpmath
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from pytensor.scalar.math import Erf

from pymc_fastlogp.analysis.elemwise import is_made_by
from tests.rewrites.conftest import (
    PYTHON,
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    pregrad,
    value_and_gradient,
    with_gradients,
)

RULE = "fastlogp_log_of_normal_interval"
N = 12
a, b, eta = (pt.vector(name, shape=(N,)) for name in ("a", "b", "eta"))
low, high, sigma = pt.scalar("low"), pt.scalar("high"), pt.scalar("sigma")
f = pt.vector("f", shape=(N,), dtype="float32")
VALUES = {
    a: np.linspace(-3, 1, N),
    b: np.linspace(-2.5, 3, N),
    eta: np.linspace(-1, 2, N),
    f: np.linspace(-2, 2, N, dtype="float32"),
    low: np.array(-0.5),
    high: np.array(0.7),
    sigma: np.array(1.3),
}


def by_erf(z):
    return 0.5 * (1 + pt.erf(z / np.sqrt(2.0)))


def by_erfc(z):
    return 0.5 * pt.erfc(-z / np.sqrt(2.0))


def interval(phi, b=b, a=a):
    return pt.log(phi(b) - phi(a))


SPELLINGS = {
    "erf": interval(by_erf),
    "erfc": interval(by_erfc),
    "half plus half of erf": interval(lambda z: 0.5 + 0.5 * pt.erf(z / np.sqrt(2.0))),
    "invprobit": interval(pm.math.invprobit),
    "bare erf": interval(pt.erf),
    "bare erfc": interval(lambda z: pt.erfc(-z)),
    "location": interval(by_erf, high - eta, low - eta),
    "location and scale": interval(by_erfc, (high - eta) / sigma, (low - eta) / sigma),
    "float32": interval(pt.erf, f + np.float32(1), f),
}
REFUSES = {
    "sum": pt.log(pt.erf(b) + pt.erf(a)),
    "two functions": pt.log(pt.erf(b) - pt.erfc(a)),
    "another function": pt.log(pt.erf(b) - pt.tanh(a)),
    "factors that differ": pt.log(0.5 * pt.erf(b) - 0.25 * pt.erf(a)),
    "negative factor": pt.log(-0.5 * pt.erf(b) - -0.5 * pt.erf(a)),
    "factor that is not constant": pt.log(low * pt.erf(b) - low * pt.erf(a)),
    "no logarithm": pt.erf(b) - pt.erf(a),
}


@pytest.mark.parametrize("before", [pt.log(pt.erf(b) - pt.erf(a)), pt.log(pt.erfc(a) - pt.erfc(b))])
def test_graph(before):
    s = pt.switch(pt.ge(a + b, 0), 1.0, -1.0)
    assert_rewritten(before, pt.log(s * (pt.erfc(s * a) - pt.erfc(s * b))))


def test_graph_with_a_factor():
    s = pt.switch(pt.ge(a + b, 0), 1.0, -1.0)
    expected = pt.log(s * (0.5 * pt.erfc(s * a) - 0.5 * pt.erfc(s * b)))
    assert_rewritten(pt.log(0.5 * pt.erf(b) - 0.5 * pt.erf(a)), expected)


@pytest.mark.parametrize("name", SPELLINGS)
def test_value_and_gradient(name):
    found = pregrad(SPELLINGS[name], on=True)
    assert found.type == SPELLINGS[name].type
    assert not any(is_made_by(x, Erf) for x in ancestors([found]))
    is_narrow = found.type.dtype == "float32"
    assert_same_value_and_gradient(SPELLINGS[name], VALUES, rtol=1e-4 if is_narrow else 1e-11)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


def exact(u, v):
    """Return ``log(erf(v) - erf(u))`` and its derivatives by ``v`` and ``u``."""
    with mpmath.workdps(900):
        u, v = mpmath.mpf(float(u)), mpmath.mpf(float(v))
        p = mpmath.erfc(u) - mpmath.erfc(v)
        slopes = [2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-(x**2)) / p for x in (v, u)]
        return [float(x) for x in (mpmath.log(p), slopes[0], -slopes[1])]


@pytest.mark.parametrize("name", ["bare erf", "bare erfc"])
@pytest.mark.parametrize("near", [0.0, 0.5, 3.0, 9.0, 25.0])
@pytest.mark.parametrize("gap", [2.0**-20, 0.25, 4.0])
@pytest.mark.parametrize("is_below", [False, True])
def test_error_in_both_tails_is_bounded_by_the_distance_of_the_ends(name, near, gap, is_below):
    u, v = (-near - gap, -near) if is_below else (near, near + gap)
    found = with_gradients(SPELLINGS[name].sum(), [b, a], on=True, mode=PYTHON)(
        np.full(N, v), np.full(N, u)
    )
    distance = gap * np.sqrt(2)
    expected, error = exact(u, v), 4e-15 / min(distance, 1)
    # The value sums N terms. Its own rounding is relative.
    np.testing.assert_allclose(found[0] / N, expected[0], rtol=1e-15, atol=error)
    for slope, reference in zip(found[1:], expected[1:], strict=True):
        # The exponent of a slope in the tail has a relative error of one rounding.
        np.testing.assert_allclose(slope, reference, rtol=error + 2e-16 * near**2, atol=1e-30)


ENDS = [-np.inf, -7.0, -1.0, 0.0, 2.0, np.inf, np.nan]


@pytest.mark.parametrize("v", ENDS)
@pytest.mark.parametrize("u", ENDS)
def test_agrees_at_infinite_unsorted_and_equal_ends(u, v):
    out, at = SPELLINGS["erfc"], {b: np.full(N, v), a: np.full(N, u)}
    off, on = (value_and_gradient(out, at, on=on) for on in (False, True))
    np.testing.assert_allclose(on[0], off[0], rtol=1e-10, atol=1e-15)
    # The derivative of the logarithm at a zero of either sign is an infinity of either sign.
    if u != v:
        for expected, found in zip(off[1:], on[1:], strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-15)


def test_upstream_loses_an_interval_ten_deviations_above_the_mean():
    off, on = (
        pregrad(SPELLINGS["erf"], on=on).eval(
            {b: np.full(N, 11.0), a: np.full(N, 10.0)}, mode=PYTHON
        )
        for on in (False, True)
    )
    expected = exact(*np.array([10.0, 11.0]) / np.sqrt(2))[0] - np.log(2)
    np.testing.assert_array_equal(off, -np.inf)
    np.testing.assert_allclose(on, expected, rtol=1e-14)


def test_rounded_outcomes_of_a_model():
    """Outcomes known to a tenth, far from the mean at the point that is evaluated."""
    y = np.linspace(-1, 1, N).round(1)
    with pm.Model() as model:
        mu, sd = pm.Normal("mu"), pm.HalfNormal("sd")
        pm.Potential(
            "y",
            pt.log(by_erf((y + 0.05 - mu) / sd) - by_erf((y - 0.05 - mu) / sd)).sum(),
        )
    logp = model.logp()
    for point, is_upstream_finite in (([0.2, 0.1], True), ([-12.0, 0.0], False)):
        off, on = (
            with_gradients(logp, model.value_vars, on=on)(*map(np.asarray, point))
            for on in (False, True)
        )
        assert np.isfinite(on).all()
        assert np.isfinite(off[0]) == is_upstream_finite
        if is_upstream_finite:
            np.testing.assert_allclose(on, off, rtol=1e-10)
