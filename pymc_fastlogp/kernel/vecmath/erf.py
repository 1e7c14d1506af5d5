r"""The error functions: erf, erfc, erfcx.

The scaled function :math:`\mathrm{erfcx}(x) = e^{x^2} \mathrm{erfc}(x)` has one formula on the half-line :math:`x \ge 0`,

.. math::

    \mathrm{erfcx}(x) = w\,(a + w\,(b - (1 + t)\,(4 - p(t)))), \qquad w = \frac{1}{x + 3}, \qquad t = 1 - 6 w = \frac{x - 3}{x + 3},

where :math:`t` goes from -1 to 1. The constant :math:`a = 1/\sqrt\pi` gives the limit at infinity, and :math:`b = 9 - 3 a` gives the value 1 at
zero. The minimax polynomial ``ERFCX`` for :math:`p` minimizes the relative error of the result (for the map of the half-line: M. M. Shepherd and
J. G. Laframboise 1981, Chebyshev approximation of :math:`(1 + 2x) \exp(x^2) \mathrm{erfc}(x)` in :math:`0 \le x < \infty`). Then, for :math:`x \ge 0`,

.. math::

    \mathrm{erfc}(x) &= e^{-x^2} \mathrm{erfcx}(x), & \mathrm{erfc}(-x) &= 2 - \mathrm{erfc}(x), &
    \mathrm{erfcx}(-x) &= 2 e^{x^2} - \mathrm{erfcx}(x).

The rounding error of :math:`x^2` matters, because :math:`x^2` is up to 745. Everything except :math:`p` and the exponential of a remainder is
computed in pairs. :math:`1 + t = 2 x w` is computed first, because it is accurate near 0, where the result depends on it most. The constant 4 is exact
and makes :math:`p` small.

**erf** near 0 would lose all digits in :math:`1 - \mathrm{erfc}`. For :math:`|x| < 1`, :math:`\mathrm{erf}(x) = x + x\,q(x^2)`, a small
correction of :math:`x`. Above, :math:`\mathrm{erf}(x) = 1 - e^{g(x)}` with a polynomial for :math:`g = \log \mathrm{erfc}`, whose errors are
multiplied by less than 1/5.

**Error budget** in ulp of the result: the polynomial ``ERFCX`` and its evaluation 1/2, the exponential
1/3, the final rounding 1/2; for erf the polynomials and the exponential 1/2, the final rounding 1/2.
"""

from dataclasses import dataclass

from pymc_fastlogp.kernel.vecmath.compensated import (
    exp_of_remainder,
    product,
    reduce_pair_by_ln2,
)
from pymc_fastlogp.kernel.vecmath.exponential import power_of_two, reduce_by_ln2
from pymc_fastlogp.kernel.vecmath.logarithm import INF
from pymc_fastlogp.kernel.vecmath.polynomials import ERF, ERFCX, LOG_ERFC
from pymc_fastlogp.kernel.vecmath.vector import Floats, Pair, fast_two_sum, two_sum

# From these arguments on, erf is 1 and erfc is 0.
ERF_HIGH, ERFC_HIGH = 6.0, 28.0
# Boundary between the two formulas of erf.
ERF_NEAR = 1.0
# 9 - 3/sqrt(pi) as a pair.
AT_ZERO = (7.307431249356731, 8.801911304276683e-17)


@dataclass(frozen=True)
class HalfLineConstants:
    """The constants 3 and ``1/sqrt(pi)`` of the formula on the half-line, each as a pair.

    With ``3 / r`` and ``r / sqrt(pi)`` the formula gives ``r**2 * erfcx(r * x)``.
    """

    shift: tuple[float, float]
    limit: tuple[float, float]


ERFCX_CONSTANTS = HalfLineConstants((3.0, 0.0), (0.5641895835477563, 7.66772980658294e-18))


def erf(x: Floats) -> Floats:
    """Return the error function."""
    near = x.fma((x * x).polynomial(ERF), x)
    magnitude = x.magnitude()
    a = magnitude.at_most(ERF_HIGH)
    far = 1.0 - reduce_by_ln2(a.polynomial(LOG_ERFC)).exp()
    return (magnitude < ERF_NEAR).select(near, far.with_sign_of(x))


def erfc(x: Floats) -> Floats:
    """Return 1 - erf(x)."""
    magnitude = x.magnitude().at_most(ERFC_HIGH)
    square = product(magnitude, magnitude)
    tail = times_exp_of_minus(square, erfcx_on_half_line(magnitude, ERFCX_CONSTANTS)).rounded()
    return (x < 0.0).select(2.0 - tail, tail)


def erfcx(x: Floats) -> Floats:
    """Return exp(x**2) erfc(x)."""
    magnitude = x.magnitude()
    tail = erfcx_on_half_line(magnitude, ERFCX_CONSTANTS)
    negative = x < 0.0
    result = negative.select(_erfcx_of_minus(magnitude, tail), tail.rounded())
    return magnitude.equals(INF).select(negative.select(INF, 0.0), result)


def erfcx_on_half_line(x: Floats, constants: HalfLineConstants) -> Pair:
    """Return erfcx(x) for finite x >= 0, scaled as the constants are."""
    denominator = two_sum(constants.shift[0], x)
    w = 1.0 / denominator.high
    # The relative error of w.
    error = (-w).fma(denominator.low + constants.shift[1], (-w).fma(denominator.high, 1.0))
    xw = x * w
    one_plus_t = xw.fma(error, xw) * 2.0
    rest = one_plus_t.fma((one_plus_t - 1.0).polynomial(ERFCX), AT_ZERO[1])
    leading = fast_two_sum(AT_ZERO[0], one_plus_t * -4.0)
    wp = product(w, leading.high)
    factor = two_sum(constants.limit[0], wp.high)
    low = w.fma(leading.low + rest, wp.low + constants.limit[1])
    low = wp.high.fma(error, low) + factor.low
    high = factor.high * w
    rounding = factor.high.fma(w, -high)
    return fast_two_sum(high, w.fma(low, high.fma(error, rounding)))


def times_exp_of_minus(x: Pair, y: Pair) -> Pair:
    """Return ``exp(-x) * y`` as a power of two times ``y.high``, and a rest of up to half of that."""
    reduced = reduce_pair_by_ln2(Pair(-x.high, -x.low))
    scale = power_of_two(reduced.k)
    rest = y.high.fma(reduced.expm1().rounded(), y.low)
    return Pair(y.high * scale.first * scale.second, rest * scale.first * scale.second)


def _erfcx_of_minus(magnitude: Floats, tail: Pair) -> Floats:
    """Return ``2 exp(x**2) - erfcx(x)``; the power of two is factored out, because it would overflow first."""
    reduced = reduce_pair_by_ln2(product(magnitude, magnitude))
    exp = exp_of_remainder(reduced)
    shrink, scale = power_of_two(-reduced.k), power_of_two(reduced.k)
    high = tail.high * shrink.first * shrink.second
    low = tail.low * shrink.first * shrink.second
    leading = fast_two_sum(exp.high * 2.0, -high)
    rest = leading.low + (exp.low * 2.0 - low)
    return scale.first.fma(rest, scale.first * leading.high) * scale.second
