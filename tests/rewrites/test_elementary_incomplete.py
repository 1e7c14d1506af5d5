"""Incomplete gamma and beta functions of one: graph, value, gradient, digits, refusals."""

import mpmath
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from pytensor.scalar.math import BetaInc, GammaInc, GammaIncC

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

RULE = "fastlogp_elementary_incomplete"
N = 5
x, b = pt.vector("x", shape=(N,)), pt.scalar("b")
n = pt.vector("n", shape=(N,), dtype="uint8")
f32 = pt.vector("f32", shape=(N,), dtype="float32")
unknown_length = pt.vector("unknown_length")
rate, shape, p = pt.exp(x), pt.exp(b), pt.tanh(pt.exp(x))
trials = np.arange(1, N + 1)
COUNTS = np.array([0, 1, 1, 4, 9])
ones = np.ones(N)
VALUES = {
    x: np.linspace(-2, 1, N),
    b: np.array(0.3),
    f32: np.linspace(-2, 2, N, dtype="float32"),
}

FIRES = {
    "gammaincc": (pt.gammaincc(1.0, rate), pt.exp(-rate)),
    "gammaincc of an integer": (pt.gammaincc(1, rate), pt.exp(-rate)),
    "gammaincc of many ones": (pt.gammaincc(ones, rate), pt.exp(-rate)),
    "gammaincc of float32": (
        pt.gammaincc(np.float32(1), pt.exp(f32)),
        pt.exp(-pt.exp(f32)),
    ),
    "gammaincc of a guarded number": (
        pt.gammaincc(1.0, pt.switch(x < 0, 0.0, x)),
        pt.exp(-pt.switch(x < 0, 0.0, x)),
    ),
    "logarithm of gammaincc": (pt.log(pt.gammaincc(1.0, rate)), -rate),
    "gammainc": (pt.gammainc(1.0, rate), -pt.expm1(-rate)),
    "logarithm of gammainc": (pt.log(pt.gammainc(1.0, rate)), pt.log1mexp(-rate)),
    "betainc of one last": (pt.betainc(shape, 1.0, p), pt.exp(shape * pt.log(p))),
    "logarithm of betainc": (pt.log(pt.betainc(shape, 1.0, p)), shape * pt.log(p)),
    "betainc of one first": (
        pt.betainc(1.0, shape, p),
        -pt.expm1(shape * pt.log1p(-p)),
    ),
}
REFUSES = {
    "argument that may be negative": pt.gammaincc(1.0, x),
    "two": pt.gammaincc(2.0, rate),
    "several": pt.gammaincc(np.arange(1.0, N + 1), rate),
    "first argument that is not constant": pt.gammaincc(shape, rate),
    "first argument that broadcasts": pt.gammaincc(ones, shape),
    "first argument of wider dtype": pt.gammaincc(ones, pt.exp(f32)),
    "integers": pt.gammaincc(1.0, n),
    "exponent that may be negative": pt.betainc(b, 1.0, p),
    "argument beyond one": pt.betainc(shape, 1.0, rate),
    "betainc of two": pt.betainc(shape, 2.0, p),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name])


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    assert_same_value_and_gradient(FIRES[name][0], VALUES, rtol=1e-5 if "32" in name else 1e-12)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


ENDS = np.array([-np.inf, -800.0, 7.0, np.inf, np.nan])


@pytest.mark.parametrize("name", ["gammaincc", "gammainc", "betainc of one last"])
def test_zero_infinity_and_nan(name):
    before, _ = FIRES[name]
    at = {x: ENDS} | ({b: np.array(0.3)} if "beta" in name else {})
    off, on = (value_and_gradient(before, at, on=on) for on in (False, True))
    np.testing.assert_allclose(on[0], off[0], rtol=1e-13)


def above_zero(dist):
    """Return the log density of counts of at least one."""
    return pm.logp(pm.Truncated.dist(dist, lower=1), np.array([1, 1, 2, 4, 5]))


PROBABILITY = pt.sigmoid(x)
SPELLINGS = {
    "no counts, Poisson": pm.logcdf(pm.Poisson.dist(rate), np.zeros(N)),
    "no counts, binomial": pm.logcdf(pm.Binomial.dist(trials, PROBABILITY), np.zeros(N)),
    "not all, binomial": pm.logcdf(pm.Binomial.dist(trials, PROBABILITY), trials - 1.0),
    "Poisson": above_zero(pm.Poisson.dist(rate)),
    "Poisson, rate that may be negative": above_zero(pm.Poisson.dist(3.0 + x)),
    "negative binomial": above_zero(pm.NegativeBinomial.dist(mu=rate, alpha=shape)),
    "binomial": above_zero(pm.Binomial.dist(9, PROBABILITY)),
    "hurdle, Poisson": pm.logp(pm.HurdlePoisson.dist(0.7, rate), COUNTS),
    "hurdle, negative binomial": pm.logp(
        pm.HurdleNegativeBinomial.dist(0.7, mu=rate, alpha=shape), COUNTS
    ),
    "exponential as gamma": pm.logcdf(pm.Gamma.dist(1, shape), rate),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_counts_above_zero_have_no_incomplete_function(name):
    out = SPELLINGS[name]
    found = {*ancestors([pregrad(out, on=True)])}
    assert not any(is_made_by(v, GammaInc, GammaIncC, BetaInc) for v in found)
    assert_same_value_and_gradient(out, VALUES, rtol=1e-10)


@pytest.mark.parametrize("log_rate", [-700.0, -40.0, -1.0, 3.0, 6.5])
def test_digits_of_poisson(log_rate):
    """Upstream's value is minus infinity for rates below e^-37."""
    out = pm.logccdf(pm.Poisson.dist(rate), np.zeros(N)).sum()
    value, slope = with_gradients(out, [x], on=True, mode=PYTHON)(np.full(N, log_rate))
    with mpmath.workdps(400):
        mu = mpmath.exp(mpmath.mpf(log_rate))
        expected = [mpmath.log(-mpmath.expm1(-mu)), mu / mpmath.expm1(mu)]
    np.testing.assert_allclose([value / N, slope[0]], np.array(expected, float), rtol=1e-13)


@pytest.mark.parametrize("log_rate", [-500.0, -40.0, -1.0, 3.0, 30.0])
@pytest.mark.parametrize("log_shape", [-20.0, 0.3, 20.0])
def test_digits_of_negative_binomial(log_rate, log_shape):
    dist = pm.NegativeBinomial.dist(mu=rate, alpha=shape)
    out = pm.logccdf(dist, np.zeros(N)).sum()
    f = with_gradients(out, [x, b], on=True, mode=PYTHON)
    value, by_rate, by_shape = f(np.full(N, log_rate), log_shape)
    with mpmath.workdps(400):
        mu, alpha = mpmath.exp(mpmath.mpf(log_rate)), mpmath.exp(mpmath.mpf(log_shape))
        power = alpha * mpmath.log1p(mu / alpha)
        weight, slope = 1 / mpmath.expm1(power), mu / (1 + mu / alpha)
        expected = [mpmath.log(-mpmath.expm1(-power)), weight * slope, weight * (power - slope)]
        size = float(weight * power)
    np.testing.assert_allclose([value / N, by_rate[0]], np.array(expected[:2], float), rtol=1e-13)
    # Two terms that nearly cancel for small rates.
    np.testing.assert_allclose(by_shape / N, float(expected[2]), rtol=1e-13, atol=1e-13 * size)
