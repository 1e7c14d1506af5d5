"""Differences of distribution functions by their logarithms: graph, value, gradient, digits, refusals."""

import mpmath
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.math import logdiffexp
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.math import Log1mexp

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

RULE = "fastlogp_logdiffexp_of_cdfs"
N = 12
mu, scale = pt.vector("mu", shape=(N,)), pt.scalar("scale")
low, high = pt.vector("low", shape=(N,)), pt.vector("high", shape=(N,))
f = pt.vector("f", shape=(N,), dtype="float32")
y = np.linspace(0.5, 4, N)
VALUES = {
    mu: np.linspace(-1, 2, N),
    scale: np.array(1.3),
    low: np.linspace(-3, -1, N),
    high: np.linspace(-0.9, 0.5, N),
    f: np.linspace(-2, 2, N, dtype="float32"),
}


def between(dist, upper, lower):
    return logdiffexp(pm.logcdf(dist, upper), pm.logcdf(dist, lower))


def log_sigmoid(x):
    return -pt.softplus(-x)


SPELLINGS = {
    "logistic": between(pm.Logistic.dist(mu, scale), y + 0.5, y - 0.5),
    "logistic, bounds in place of data": between(pm.Logistic.dist(mu, scale), high, low),
    "exponential": between(pm.Exponential.dist(scale=pt.exp(mu)), y + 0.5, y - 0.4),
    "Weibull": between(pm.Weibull.dist(scale, pt.exp(mu)), y + 0.5, y - 0.4),
    "geometric": between(pm.Geometric.dist(pt.sigmoid(mu)), np.arange(N) + 3, np.arange(N) + 1),
    "float32": logdiffexp(log_sigmoid(f + np.float32(1)), log_sigmoid(f)),
}
switched = logdiffexp(log_sigmoid(high), log_sigmoid(low))
condition, _, total = switched.owner.inputs
REFUSES = {
    "two kinds": logdiffexp(log_sigmoid(high), pt.log1mexp(-pt.exp(low))),
    "another function": logdiffexp(pt.log(high), pt.log(low)),
    "no switch": log_sigmoid(high) + pt.log1mexp(log_sigmoid(low) - log_sigmoid(high)),
    "another condition": pt.switch(pt.eq(mu, -np.inf), log_sigmoid(high), total),
    "another bound": pt.switch(pt.eq(log_sigmoid(low), 0), log_sigmoid(high), total),
    "another value in the switch": pt.switch(condition, mu, total),
    "normal, with PyMC's root of two": between(pm.Normal.dist(mu, scale), y + 0.5, y - 0.5),
}


def test_graph_of_logistic():
    gap = pt.switch(pt.isinf(high) & pt.eq(high, low), 0.0, low - high)
    expected = pt.log1mexp(gap) - pt.softplus(low) - pt.softplus(-high)
    assert_rewritten(switched, expected, RULE)


def test_graph_of_hazards():
    before = logdiffexp(pt.log1mexp(low - mu), pt.log1mexp(high - mu))
    gap = pt.switch(pt.isinf(high) & pt.eq(high, low), 0.0, low - high)
    assert_rewritten(before, high - mu + pt.log1mexp(gap), RULE)


@pytest.mark.parametrize("name", SPELLINGS)
def test_value_and_gradient(name):
    out = SPELLINGS[name]
    found = pregrad(out, on=True)
    assert found.type == out.type
    # None is left if the distance of the ends is constant.
    assert sum(is_made_by(x, Log1mexp) for x in ancestors([found])) <= 1
    assert_same_value_and_gradient(out, VALUES, rtol=1e-4 if name == "float32" else 1e-11)


def test_upstream_has_no_gradient_of_an_interval_from_zero_on():
    out = between(pm.Exponential.dist(scale=pt.exp(mu)), y + 0.5, y - 0.5)
    off, on = (value_and_gradient(out, {mu: VALUES[mu]}, on=on) for on in (False, True))
    np.testing.assert_allclose(on[0], off[0], rtol=1e-13)
    assert np.isnan(off[1]).tolist() == [True] + [False] * (N - 1)
    assert np.isfinite(on[1]).all()
    np.testing.assert_allclose(on[1][1:], off[1][1:], rtol=1e-11)


def test_checks_of_parameters_are_kept_once():
    found = pregrad(SPELLINGS["logistic"], on=True)
    assert sum(isinstance(x.owner_op, CheckAndRaise) for x in ancestors([found])) == 1
    with pytest.raises(pm.logprob.utils.ParameterValueError):
        found.eval({mu: VALUES[mu], scale: np.array(-1.0)}, mode=PYTHON)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


ENDS = [-np.inf, -7.0, 0.0, 2.0, np.inf, np.nan]


@pytest.mark.parametrize("b", ENDS)
@pytest.mark.parametrize("a", ENDS)
def test_infinite_equal_and_unsorted_ends(a, b):
    at = {high: np.full(N, b), low: np.full(N, a)}
    off, on = (value_and_gradient(switched, at, on=on) for on in (False, True))
    np.testing.assert_allclose(on[0], off[0], rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("center", [-35.0, -1.0, 8.0, 600.0])
@pytest.mark.parametrize("width", [2.0**-20, 1.0])
def test_digits_of_logistic(center, width):
    """Value and derivatives by location and scale, against 1e-8 of value and 1e-5 of derivative upstream for close ends."""
    where, s = pt.vector("where", shape=(2,)), pt.vector("s", shape=(2,))
    upper, lower = (pt.constant([h, h]) for h in (width, -width))
    out = between(pm.Logistic.dist(where, s), upper, lower).sum()
    found = with_gradients(out, [where, s], on=True, mode=PYTHON)([center] * 2, [0.7] * 2)
    with mpmath.workdps(800):
        b, a = ((h - mpmath.mpf(center)) / mpmath.mpf(0.7) for h in (width, -width))
        of_b, of_a = (1 / (1 + mpmath.exp(-x)) for x in (b, a))
        p = of_b - of_a
        by_b, by_a = of_b * (1 - of_b) / p, -of_a * (1 - of_a) / p
        scale = mpmath.mpf(0.7)
        expected = [2 * mpmath.log(p), -(by_b + by_a) / scale, -(by_b * b + by_a * a) / scale]
    for result, reference in zip(found, expected, strict=True):
        np.testing.assert_allclose(float(np.ravel(result)[0]), float(reference), rtol=4e-15)


@pytest.mark.parametrize("hazard", [1e-6, 0.7, 30.0, 800.0])
def test_digits_of_exponential(hazard):
    rate = pt.vector("rate", shape=(2,))
    upper, lower = 1.5 + 2.0**-20, 1.5
    out = between(pm.Exponential.dist(lam=rate), np.full(2, upper), np.full(2, lower)).sum()
    found = with_gradients(out, [rate], on=True, mode=PYTHON)([hazard] * 2)
    with mpmath.workdps(800):
        lam = mpmath.mpf(hazard)
        low_survival, high_survival = (mpmath.exp(-lam * t) for t in (lower, upper))
        p = low_survival - high_survival
        slope = (upper * high_survival - lower * low_survival) / p
    np.testing.assert_allclose(found[0], float(2 * mpmath.log(p)), rtol=4e-15)
    np.testing.assert_allclose(found[1], float(slope), rtol=1e-14)


@pytest.mark.parametrize("d", [1.0, 1e-4, 1e-10])
def test_bound_of_the_error_of_normal_intervals(d):
    """The bound that the page on reliability states for what the rule refuses."""
    z = np.array([-30.0, -10.0, -4.0, -1.5, -0.5, 0.5, 2.0, 5.0, 8.5, 30.0])
    ends = z + d
    value = between(pm.Normal.dist(0, 1), high, low)
    found = pregrad(value, on=True).eval({low: np.resize(z, N), high: np.resize(ends, N)})
    for result, a, b in zip(found, z, ends, strict=False):
        with mpmath.workdps(500):
            near, far = sorted(map(mpmath.mpf, (a, b)), key=abs)
            root = mpmath.sqrt(2)
            exact = mpmath.log((mpmath.erfc(abs(near) / root) - mpmath.erfc(abs(far) / root)) / 2)
            if near * far < 0:
                exact = mpmath.log((mpmath.erf(b / root) - mpmath.erf(a / root)) / 2)
        most = max(abs(a), abs(b))
        assert abs(result - exact) <= 3e-8 * (most**2 + 1) + 5e-16 * (most + 1) / d


def test_truncated_logistic_of_a_model():
    with pm.Model() as model:
        m, s = pm.Normal("m"), pm.HalfNormal("s")
        pm.Truncated("y", pm.Logistic.dist(m, s), -1, 1, observed=np.linspace(-0.9, 0.9, N))
    logp = model.logp()
    for point in ([0.2, 0.1], [70.0, 0.0]):
        off, on = (
            with_gradients(logp, model.value_vars, on=on)(*map(np.asarray, point))
            for on in (False, True)
        )
        assert np.isfinite(on).all()
        np.testing.assert_allclose(on, off, rtol=1e-9)
