r"""The trigonometric functions: sin, cos, tan.

With :math:`x = k \pi/2 + r`, :math:`|r| \le \pi/4`, from :mod:`.range_reduction`,

.. math::

    \sin r = r + r^3 p(r^2), \qquad \cos r = 1 - r^2/2 + r^4 q(r^2)

with the minimax polynomials ``SIN`` and ``COS``. For odd :math:`k` sine and cosine swap. The sign is bit 1 of :math:`k` for the sine, and bit 1 of :math:`k + 1` for the cosine.
The tangent is a quotient of pairs, :math:`\sin r / \cos r` for even :math:`k` and :math:`-\cos r / \sin r` for odd :math:`k`.

**Error budget**, in ulp of the result: the final rounding 1/2; for the sine the rounding of :math:`r^3 p`, 1/8;
for the cosine the rounding of :math:`r^2`, 1/4, and of the other terms, 1/8; for the tangent the errors of sine and cosine together.
"""

from pymc_fastlogp.kernel.vecmath.polynomials import COS, SIN
from pymc_fastlogp.kernel.vecmath.range_reduction import reduce_by_half_pi
from pymc_fastlogp.kernel.vecmath.vector import (
    Floats,
    Integers,
    Pair,
    fast_two_sum,
    quotient_of_pairs,
    select_pair,
)

# Below this magnitude sin(x) and tan(x) are x to within half an ulp.
TINY = 2.0**-27
# The shift that moves bit 1 to the sign bit.
TO_SIGN = 62
BIT_1 = 2


def sin(x: Floats) -> Floats:
    """Return the sine."""
    return _sin(x, *_sine_and_cosine(x))


def cos(x: Floats) -> Floats:
    """Return the cosine."""
    return _cos(*_sine_and_cosine(x))


def sin_cos(x: Floats) -> tuple[Floats, Floats]:
    """Return sine and cosine, which share all but the last step."""
    reduced = _sine_and_cosine(x)
    return _sin(x, *reduced), _cos(*reduced)


def tan(x: Floats) -> Floats:
    """Return the tangent."""
    k, sine, cosine = _sine_and_cosine(x)
    odd = k.is_odd()
    ratio = quotient_of_pairs(select_pair(odd, cosine, sine), select_pair(odd, sine, cosine))
    result = ratio.rounded()
    return (x.magnitude() < TINY).select(x, odd.select(-result, result))


def _sine_and_cosine(x: Floats) -> tuple[Integers, Pair, Pair]:
    """Return k, and the sine and cosine of r as pairs, whose high parts are the rounded values."""
    k, r = reduce_by_half_pi(x)
    square = r.high * r.high
    half = square * 0.5
    leading = 1.0 - half
    sine = (r.high * square).fma(square.polynomial(SIN), r.low * leading)
    tail = (square * square).fma(square.polynomial(COS), -(r.high * r.low))
    cosine = ((1.0 - leading) - half) + tail
    return k, fast_two_sum(r.high, sine), fast_two_sum(leading, cosine)


def _sin(x: Floats, k: Integers, sine: Pair, cosine: Pair) -> Floats:
    value = k.is_odd().select(cosine.high, sine.high)
    return (x.magnitude() < TINY).select(x, _change_sign(value, k))


def _cos(k: Integers, sine: Pair, cosine: Pair) -> Floats:
    value = k.is_odd().select(sine.high, cosine.high)
    return _change_sign(value, k + 1)


def _change_sign(value: Floats, k: Integers) -> Floats:
    """Return the value, negated where bit 1 of k is set."""
    return (value.bits() ^ ((k & BIT_1) << TO_SIGN)).as_floats()
