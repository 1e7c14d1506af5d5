"""Differences of normal probabilities: graph, value, gradient, digits against mpmath, refusals."""

import mpmath
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions.dist_math import log_diff_normal_cdf
from pytensor.compile.mode import Mode
from pytensor.graph.traversal import ancestors
from pytensor.scalar.math import Erf

from pymc_fastlogp.analysis.elemwise import is_made_by
from pymc_fastlogp.rewrites.scalars.log_of_erf_interval import log_of_erf_interval
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
REWRITTEN = Mode(linker="py", optimizer="fast_run")
N = 12
a, b, eta = (pt.vector(name, shape=(N,)) for name in ("a", "b", "eta"))
low, high, sigma = pt.scalar("low"), pt.scalar("high"), pt.scalar("sigma")
f = pt.vector("f", shape=(N,), dtype="float32")
whole = pt.vector("whole", shape=(N,), dtype="int64")
VALUES = {
    whole: np.arange(N) % 5 - 3,
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
    "pymc": log_diff_normal_cdf(0, 1, b, a),
    "pymc, location and scale": log_diff_normal_cdf(eta, sigma, high, low),
    "bare erf": interval(pt.erf),
    "bare erfc": interval(lambda z: pt.erfc(-z)),
    "location": interval(by_erf, high - eta, low - eta),
    "location and scale": interval(by_erfc, (high - eta) / sigma, (low - eta) / sigma),
    "integer": interval(pt.erf, whole + 1, whole),
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


def interval_of(u, v):
    d = pt.switch(pt.isinf(u) & pt.eq(u, v), 0.0, v - u)
    return log_of_erf_interval(u, v, d)


@pytest.mark.parametrize(("u", "v"), [(0.0, 1.0), (-30.0, -29.0), (2.0, 2.5)])
@pytest.mark.parametrize("name", ["bare erf", "bare erfc", "pymc"])
def test_graph_and_value(name, u, v):
    expected = interval_of(a, b).eval({a: np.full(N, u), b: np.full(N, v)}, mode=PYTHON)
    shift = {"pymc": 0.0}.get(name, np.log(2))
    scale = np.sqrt(2) if name == "pymc" else 1.0
    at = {a: np.full(N, scale * u), b: np.full(N, scale * v)}
    out = pregrad(SPELLINGS[name], on=True)
    np.testing.assert_allclose(out.eval(at, mode=PYTHON), expected + shift, rtol=1e-7)


@pytest.mark.parametrize("before", [pt.log(pt.erf(b) - pt.erf(a)), pt.log(pt.erfc(a) - pt.erfc(b))])
def test_graph(before):
    assert_rewritten(before, np.log(2) + interval_of(a, b))


def test_graph_with_a_factor():
    assert_rewritten(pt.log(0.5 * pt.erf(b) - 0.5 * pt.erf(a)), interval_of(a, b))
    assert_rewritten(pt.log(2 * pt.erf(b) - 2 * pt.erf(a)), np.log(4) + interval_of(a, b))


def cases_of_pymc(u, v, *, above=1, below=1, first=pt.gt, second=pt.lt):
    """Return the three cases of ``log_diff_normal_cdf``, and, with other arguments, cases of another function."""
    return pt.switch(
        first(u, 0),
        pt.log(pt.erfcx(u) - above * pt.exp(pt.sqr(u) - pt.sqr(v)) * pt.erfcx(v)) - pt.sqr(u),
        pt.switch(
            second(v, 0),
            pt.log(pt.erfcx(-v) - below * pt.exp(pt.sqr(v) - pt.sqr(u)) * pt.erfcx(-u)) - pt.sqr(v),
            pt.log(pt.erf(v) - pt.erf(u)),
        ),
    )


def test_graph_of_three_cases():
    assert_rewritten(cases_of_pymc(a, b), np.log(2) + interval_of(a, b))


OTHER_CASES = {
    "a factor above": cases_of_pymc(a, b, above=2),
    "a factor below": cases_of_pymc(a, b, below=2),
    "the first condition": cases_of_pymc(a, b, first=pt.lt),
    "the second condition": cases_of_pymc(a, b, second=pt.gt),
    "case above": pt.switch(pt.gt(a, 0), b, cases_of_pymc(a, b).owner.inputs[2]),
    "another end": pt.switch(pt.gt(eta, 0), *cases_of_pymc(a, b).owner.inputs[1:]),
}


@pytest.mark.parametrize("name", OTHER_CASES)
def test_refuses_other_cases(name):
    assert_left_alone(OTHER_CASES[name], "fastlogp_switch_of_normal_interval")


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
    """Return ``log(erf(v) - erf(u))``, and its derivatives by ``v`` and ``u``."""
    with mpmath.workdps(900):
        p = mpmath.erfc(u) - mpmath.erfc(v)
        slopes = [2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-(x**2)) / p for x in (v, u)]
        return mpmath.log(p), slopes[0], -slopes[1]


MU, SIGMA = pt.vector("mu", shape=(1,)), pt.vector("s", shape=(1,))
# The outcome, half the width of the interval, location and scale: all that a sampler varies.
AT_ENDS = [
    (y, width, mu, scale)
    for y, width in ((0.5, 0.5), (-0.25, 2.0**-30), (3.0, 2.0**-10), (0.0, 8.0))
    for mu, scale in ((0.3, 1.2), (-11.7, 1.2), (27.3, 0.7), (0.0, 1e3))
]


@pytest.mark.parametrize("name", ["erf", "pymc"])
@pytest.mark.parametrize(("y", "width", "mu", "scale"), AT_ENDS)
def test_digits_of_rounded_outcomes(name, y, width, mu, scale):
    """Value and gradient have relative errors below 1e-14, where the width of the interval may be 1e-9 of the distance to the mean."""
    upper, lower = (pt.constant([y + h]) for h in (width, -width))
    if name == "erf":
        out = interval(by_erf, (upper - MU) / SIGMA, (lower - MU) / SIGMA)
        # The root of two is a double.
        root, factor = mpmath.mpf(float(np.sqrt(2.0))), -mpmath.log(mpmath.mpf(2))
    else:
        out = log_diff_normal_cdf(MU, SIGMA, upper, lower)
        # PyMC computes both constants in single precision.
        root, factor = (
            mpmath.mpf(float(f(np.float32(x)))) for f, x in ((np.sqrt, 2), (np.log, 0.5))
        )
    function = with_gradients(out.sum(), [MU, SIGMA], on=True, mode=PYTHON)
    found = function([mu], [scale])
    with mpmath.workdps(900):
        u, v = ((mpmath.mpf(y) + h - mpmath.mpf(mu)) / scale / root for h in (-width, width))
        value, by_v, by_u = exact(u, v)
        value += factor
        by_mu = -(by_v + by_u) / scale / root
        by_scale = -(by_v * v + by_u * u) / scale
    # A value next to zero has the rounding of the constant, and a location in the middle the derivative zero.
    for result, expected, error in zip(found, (value, by_mu, by_scale), (1e-16, 0, 0), strict=True):
        number = float(np.ravel(result)[0])
        np.testing.assert_allclose(number, float(expected), rtol=1e-14, atol=error)


ENDS = [-np.inf, -7.0, -1.0, 0.0, 2.0, np.inf, np.nan]


@pytest.mark.parametrize("v", ENDS)
@pytest.mark.parametrize("u", ENDS)
def test_agrees_at_infinite_unsorted_and_equal_ends(u, v):
    out, at = SPELLINGS["erfc"], {b: np.full(N, v), a: np.full(N, u)}
    off, on = (value_and_gradient(out, at, on=on) for on in (False, True))
    np.testing.assert_allclose(on[0], off[0], rtol=1e-10, atol=1e-15)
    # A sampler rejects other points.
    if np.isfinite(off[0]).all():
        for expected, found in zip(off[1:], on[1:], strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("far", [-30.1, -0.3, 12.7])
@pytest.mark.parametrize("width", [2.0**-20, 0.5])
def test_digits_of_ordered_probit(far, width):
    """The predictor cancels in the distance of two cut points, also where the difference of cut point and predictor is rounded."""
    cut = pt.vector("cut", shape=(3,))
    p = pm.OrderedProbit.compute_p(eta, cut, 1.0)
    out = pt.log(p[np.arange(N), np.resize([1, 2], N)])
    at = np.array([0.0, width, 2 * width])
    found = pregrad(out, on=True)
    slope = pytensor.grad(found.sum(), eta)
    # Rewritten as for any compiled function: upstream's outer categories have infinite terms that are not selected.
    value, by_eta = pytensor.function([eta, cut], [found, slope], mode=REWRITTEN)(
        np.full(N, far), at
    )
    root, factor = (mpmath.mpf(float(f(np.float32(x)))) for f, x in ((np.sqrt, 2), (np.log, 0.5)))
    for k in (1, 2):
        with mpmath.workdps(900):
            u, v = ((mpmath.mpf(at[k + i]) - mpmath.mpf(far)) / root for i in (-1, 0))
            log_p, by_v, by_u = exact(u, v)
            expected = float(log_p + factor), float(-(by_v + by_u) / root)
        np.testing.assert_allclose(value[k - 1], expected[0], rtol=1e-15)
        np.testing.assert_allclose(by_eta[k - 1], expected[1], rtol=4e-15)


def test_upstream_loses_an_interval_ten_deviations_above_the_mean():
    off, on = (
        pregrad(SPELLINGS["erf"], on=on).eval(
            {b: np.full(N, 11.0), a: np.full(N, 10.0)}, mode=PYTHON
        )
        for on in (False, True)
    )
    ends = map(mpmath.mpf, np.array([10.0, 11.0]) / np.sqrt(2))
    expected = float(exact(*ends)[0]) - np.log(2)
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
