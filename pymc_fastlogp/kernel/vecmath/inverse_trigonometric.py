r"""The inverse trigonometric functions: arcsin, arccos, arctan, arctan2.

**arcsin, arccos.** For :math:`|x| \le 1/2`, with the minimax polynomial ``ASIN``,
:math:`\arcsin x = x + x^3 p(x^2)`. Beyond, let :math:`s = \sqrt{(1 - |x|)/2}`, the root of an exact difference:

.. math::

    \arcsin |x| &= \pi/2 - 2 \arcsin s & \arccos x &= \pi/2 - \arcsin x, \quad |x| \le 1/2 \\
    \arccos x &= 2 \arcsin s, \quad x > 1/2 & \arccos x &= \pi - 2 \arcsin s, \quad x < -1/2

(fdlibm). All lanes evaluate one polynomial of :math:`x^2` or :math:`s^2`, which are at most 1/4.

**arctan, arctan2.** The angle of a point :math:`(d, n)` with :math:`0 \le n \le d` is

.. math::

    \arctan \frac n d = \frac \pi 4 - \arctan \frac{d - n}{d + n}

The second form is used for :math:`n/d > \tan(\pi/8)`. The remaining quotient :math:`y` is then at
most :math:`\tan(\pi/8)`, and :math:`\arctan y = y + y^3 p(y^2)` with the minimax polynomial ``ATAN``. :math:`y` is a quotient of pairs, because
its rounding error would matter where :math:`\pi/4` nearly cancels. In the other octants the angle of the mirrored point is
subtracted from :math:`\pi/2` or :math:`\pi`.

Multiples of :math:`\pi/4` are pairs, and so are sums with these multiples.

**Error budget**, in ulp of the result: the final rounding 1/2; the rounding of the square root 1/2; the
polynomials and their rounding 1/4.
"""

from pymc_fastlogp.kernel.vecmath.logarithm import INF
from pymc_fastlogp.kernel.vecmath.polynomials import ASIN, ATAN
from pymc_fastlogp.kernel.vecmath.range_reduction import HALF_PI
from pymc_fastlogp.kernel.vecmath.vector import (
    Floats,
    Mask,
    Pair,
    fast_two_sum,
    quotient_of_pairs,
)

HALF_PI_HIGH, HALF_PI_LOW, _ = HALF_PI
SIGN_BIT = 63
TAN_PI_8 = 0.41421356237309503
# arctan(x) is x to within half an ulp below the first magnitude, and pi/2 from the second on.
ATAN_TINY, ATAN_LARGE = 2.0**-27, 2.0**60
# Outside of these bounds both coordinates of a point are scaled, so that sums do not overflow and remainders do not underflow.
FAR, NEAR = 2.0**500, 2.0**-500


def arcsin(x: Floats) -> Floats:
    """Return the inverse sine, nan for magnitudes above 1."""
    beyond, value = _arcsine(x.magnitude())
    base = Pair(beyond.select(HALF_PI_HIGH, 0.0), beyond.select(HALF_PI_LOW, 0.0))
    factor = beyond.select(-2.0, 1.0)
    return _sum(base, _times(value, factor)).rounded().with_sign_of(x)


def arccos(x: Floats) -> Floats:
    """Return the inverse cosine, nan for magnitudes above 1."""
    beyond, value = _arcsine(x.magnitude())
    negative = x < 0.0
    # The multiple of pi/2 to which the arcsine is added.
    multiple = beyond.select(negative.select(2.0, 0.0), 1.0)
    base = Pair(multiple * HALF_PI_HIGH, multiple * HALF_PI_LOW)
    sign = negative.select(-1.0, 1.0)
    return _sum(base, _times(value, beyond.select(sign * 2.0, -sign))).rounded()


def arctan(x: Floats) -> Floats:
    """Return the inverse tangent."""
    magnitude = x.magnitude()
    t = magnitude.at_most(ATAN_LARGE)
    steep = t > 1.0
    angle = _angle(steep.select(1.0, t), steep.select(t, 1.0))
    result = _mirror(steep, 1.0, angle).rounded().with_sign_of(x)
    return (magnitude < ATAN_TINY).select(x, result)


def arctan2(y: Floats, x: Floats) -> Floats:
    """Return the angle of the point (x, y), from -pi to pi."""
    height, length = y.magnitude(), x.magnitude()
    steep = height > length
    n, d = _scaled(steep.select(length, height), steep.select(height, length))
    angle = _mirror(steep, 1.0, _angle(n, d))
    # The sign bit, because -0.0 is on the left, too.
    left = (x.bits() >> SIGN_BIT).is_odd()
    return _mirror(left, 2.0, angle).rounded().with_sign_of(y)


def _arcsine(magnitude: Floats) -> tuple[Mask, Pair]:
    """Return where ``abs(x) > 1/2``, and the arcsine of s there, of ``abs(x)`` elsewhere."""
    beyond = magnitude > 0.5
    square = beyond.select(magnitude.fma(-0.5, 0.5), magnitude * magnitude)
    s = beyond.select(square.sqrt(), magnitude)
    return beyond, Pair(s, s * square * square.polynomial(ASIN))


def _scaled(n: Floats, d: Floats) -> tuple[Floats, Floats]:
    """Return a point on the same ray as (d, n), ``0 <= n <= d``, whose coordinates are of moderate size."""
    scale = (d >= FAR).select(NEAR, (d < NEAR).select(FAR, 1.0))
    infinite = d.equals(INF)
    # The product with zero keeps nan.
    corner = n.equals(INF).select(1.0, n * 0.0)
    finite = d.equals(0.0).select(1.0, d * scale)
    return infinite.select(corner, n * scale), infinite.select(1.0, finite)


def _angle(n: Floats, d: Floats) -> Pair:
    """Return ``arctan(n / d)`` for ``0 <= n <= d``."""
    wide = n > d * TAN_PI_8
    y = quotient_of_pairs(
        _either(wide, fast_two_sum(-d, n), n), _either(wide, fast_two_sum(d, n), d)
    )
    square = y.high * y.high
    rest = (y.high * square).fma(square.polynomial(ATAN), y.low)
    base = Pair(wide.select(HALF_PI_HIGH / 2, 0.0), wide.select(HALF_PI_LOW / 2, 0.0))
    return _sum(base, Pair(y.high, rest))


def _mirror(where: Mask, multiple: float, angle: Pair) -> Pair:
    """Return the multiple of pi/2 minus the angle where true, the angle elsewhere."""
    factor = where.select(multiple, 0.0)
    base = Pair(factor * HALF_PI_HIGH, factor * HALF_PI_LOW)
    return _sum(base, _times(angle, where.select(-1.0, 1.0)))


def _either(mask: Mask, pair: Pair, single: Floats) -> Pair:
    return Pair(mask.select(pair.high, single), mask.select(pair.low, 0.0))


def _times(x: Pair, factor: Floats) -> Pair:
    """Return the product with 1, 2, -1 or -2, which is exact."""
    return Pair(x.high * factor, x.low * factor)


def _sum(base: Pair, angle: Pair) -> Pair:
    """Return the sum of two pairs, of which the first is larger or zero."""
    leading = fast_two_sum(base.high, angle.high)
    return Pair(leading.high, leading.low + (base.low + angle.low))
