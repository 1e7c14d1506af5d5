r"""The trigonometric functions: sin, cos, tan.

With :math:`x = k \pi/2 + r`, :math:`|r| \le \pi/4`, from :mod:`.quarters`,

.. math::

    \sin r = r + r^3 p(r^2), \qquad \cos r = 1 - r^2/2 + r^4 q(r^2)

with the minimax polynomials ``SIN`` and ``COS``. Where :math:`k` is odd the two change places, and bit 1 of
:math:`k`, or of :math:`k + 1` for the cosine, is the sign. The tangent is the quotient of the two as pairs,
:math:`\sin r / \cos r` or :math:`-\cos r / \sin r`.

**Error budget**, in ulp of the result: the final rounding 1/2; for the sine the rounding of :math:`r^3 p`, 1/8;
for the cosine that of :math:`r^2`, 1/4, and of the rest, 1/8; for the tangent those of sine and cosine together.
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

# sin(x) and tan(x) are x to within half an ulp below.
TINY = 2.0**-27
# From bit 1 to the sign bit.
TO_SIGN = 62
BIT_1 = 2


def sin(x: Floats) -> Floats:
    """Return the sine."""
    return _sin(x, *_turn(x))


def cos(x: Floats) -> Floats:
    """Return the cosine."""
    return _cos(*_turn(x))


def sin_cos(x: Floats) -> tuple[Floats, Floats]:
    """Return sine and cosine, which share everything but the last step."""
    turned = _turn(x)
    return _sin(x, *turned), _cos(*turned)


def tan(x: Floats) -> Floats:
    """Return the tangent."""
    k, sine, cosine = _turn(x)
    odd = k.is_odd()
    ratio = quotient_of_pairs(select_pair(odd, cosine, sine), select_pair(odd, sine, cosine))
    result = ratio.rounded()
    return (x.magnitude() < TINY).select(x, odd.select(-result, result))


def _turn(x: Floats) -> tuple[Integers, Pair, Pair]:
    """Return k, and the sine and cosine of r, whose leading parts are the rounded values."""
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
