"""The Op of intervals of a normal distribution: digits against mpmath, derivatives, infinite and unsorted ends."""

import mpmath
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_fastlogp.config import switched
from pymc_fastlogp.rewrites.scalars.log_of_erf_interval import (
    MOST_D,
    MOST_T,
    log_of_erf_interval,
)
from tests.rewrites.conftest import PYTHON, SIDES

u, v, d = (pt.vector(name) for name in ("u", "v", "d"))
OUT = log_of_erf_interval(u, v, d)
SLOPES = pytensor.grad(OUT.sum(), [u, v, d])
NEAR = [0.0, 1e-9, 0.05, 0.3, 1.0, 3.0, 6.0, 12.0, 25.0]
GAPS = [1e-12, 1e-6, 1e-3, 0.1, 0.24, 0.26, 0.7, 3.0, 20.0]


@pytest.fixture(scope="module", params=[False, True], ids=["python", "kernel"])
def function(request):
    """Return a function of value and slopes by Python, and by a kernel."""
    with switched(request.param):
        return pytensor.function([u, v, d], [OUT, *SLOPES], mode=SIDES[request.param])


def points():
    """Return both ends in one tail, and on both sides of zero, in both orders of distance."""
    ends = [(near, near + gap) for near in NEAR for gap in GAPS]
    ends += [(-share * gap, (1 - share) * gap) for share in (0.1, 0.5, 0.7) for gap in GAPS]
    # Next to the limits of the series.
    ends += [(m - MOST_D / 2, m + MOST_D / 2) for m in (0.0, MOST_T / (2 * MOST_D))]
    mirrored = [(-high, -low) for low, high in ends]
    return np.array([*ends, *mirrored]).T


def exact(low, high):
    """Return the log probability, and the ratios of both densities to the probability."""
    low, high = mpmath.mpf(low), mpmath.mpf(high)
    with mpmath.workdps(900):
        p = (mpmath.erfc(low) - mpmath.erfc(high)) / 2
        ratios = [mpmath.exp(-(x**2)) / (mpmath.sqrt(mpmath.pi) * p) for x in (low, high)]
        return mpmath.log(p), *ratios


def test_errors_of_value_and_slopes(function):
    low, high = points()
    value, by_u, by_v, by_d = function(low, high, high - low)
    for i, ends in enumerate(zip(low, high, strict=True)):
        log_p, r_u, r_v = exact(*ends)
        # A square in an exponent multiplies a relative error of an end by twice that square.
        condition = 1 + 2 * max(map(abs, ends)) ** 2
        allowed = 1e-15 * (condition if log_p > -1e-3 else 3)
        np.testing.assert_allclose(value[i], float(log_p), rtol=allowed)
        for found, expected in ((by_u[i] - by_d[i], -r_u), (by_v[i] + by_d[i], r_v)):
            np.testing.assert_allclose(found, float(expected), rtol=4e-15 * condition, atol=1e-300)


def test_derivative_by_the_location_does_not_cancel_for_close_ends(function):
    center, gap = np.array([-20.0, -1.0, 2.0**-20, 0.5, 30.0]), 2.0**-30
    low, high = center - gap / 2, center + gap / 2
    _, by_u, by_v, by_d = function(low, high, high - low)
    for i, ends in enumerate(zip(low, high, strict=True)):
        _, r_u, r_v = exact(*ends)
        np.testing.assert_allclose(by_u[i] + by_v[i], float(r_v - r_u), rtol=1e-15)
    # The density is nearly constant between the ends, so the probability is proportional to their distance.
    np.testing.assert_allclose(by_d, 1 / gap, rtol=1e-15)


INFINITE = [
    (-np.inf, np.inf, 0.0),
    (-np.inf, 0.0, np.log(0.5)),
    (0.0, np.inf, np.log(0.5)),
    (np.inf, np.inf, -np.inf),
    (-np.inf, -np.inf, -np.inf),
    (1.0, 1.0, -np.inf),
    (1.0, 0.5, np.nan),
    (5.0, -5.0, np.nan),
    (-30.0, -40.0, np.nan),
    (np.nan, 1.0, np.nan),
    (0.0, np.nan, np.nan),
]


@pytest.mark.parametrize(("low", "high", "expected"), INFINITE)
def test_infinite_equal_unsorted_and_nan_ends(function, low, high, expected):
    gap = 0.0 if low == high else high - low
    value, *slopes = function([low], [high], [gap])
    np.testing.assert_allclose(value, [expected], rtol=1e-15)
    if np.isfinite(expected):
        by_end = [slopes[0] - slopes[2], slopes[1] + slopes[2]]
        densities = [-np.exp(-(low**2)), np.exp(-(high**2))]
        p = np.exp(expected) * np.sqrt(np.pi)
        np.testing.assert_allclose(np.ravel(by_end), np.divide(densities, p), rtol=1e-14)


SECOND = [(-0.4, 0.9), (0.3, 0.4), (2.0, 3.5), (-3.0, -2.9), (-1.0, 4.0), (0.01, 0.02)]


@pytest.mark.parametrize("ends", SECOND)
def test_second_derivatives(ends):
    """Against those of the plain formula, by automatic differentiation in high precision."""
    x = pt.vector("x", shape=(2,))
    out = log_of_erf_interval(x[:1], x[1:], x[1:] - x[:1]).sum()
    hessian = pytensor.gradient.jacobian(pytensor.grad(out, x), x)
    found = hessian.eval({x: np.array(ends)}, mode=PYTHON)
    with mpmath.workdps(60):

        def log_p(a, b):
            return mpmath.log((mpmath.erf(b) - mpmath.erf(a)) / 2)

        orders = [[(2, 0), (1, 1)], [(1, 1), (0, 2)]]
        expected = [[float(mpmath.diff(log_p, ends, n)) for n in row] for row in orders]
    np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_single_precision():
    low, high = (x.astype("float32") for x in points())
    a, b = pt.fvectors("a", "b")
    out = log_of_erf_interval(a, b, b - a)
    slopes = pytensor.grad(out.sum(), [a, b])
    found = pytensor.function([a, b], [out, *slopes], mode=PYTHON)(low, high)
    assert {x.dtype for x in found} == {np.dtype("float32")}
    for i, ends in enumerate(zip(map(float, low), map(float, high), strict=True)):
        if ends[0] < ends[1]:
            np.testing.assert_allclose(found[0][i], float(exact(*ends)[0]), rtol=1e-3, atol=1e-6)
