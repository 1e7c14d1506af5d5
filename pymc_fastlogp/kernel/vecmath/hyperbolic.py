r"""The hyperbolic functions sinh and cosh, and the inverse functions arcsinh, arccosh and arctanh.

**sinh, cosh.** With :math:`|x| = k \log 2 + r` as in :mod:`.exponential`, the addition theorems

.. math::

    \cosh |x| &= a \cosh r + b \sinh r, & a &= \cosh(k \log 2) = (2^k + 2^{-k})/2 \\
    \sinh |x| &= b \cosh r + a \sinh r, & b &= \sinh(k \log 2) = (2^k - 2^{-k})/2

need no division. :math:`a` and :math:`b` are exact up to :math:`k = 26`. Small arguments lose no digits, because :math:`b = 0` for
:math:`k = 0`. :math:`\sinh r = r + r^3 p(r^2)` and :math:`\cosh r = 1 + r^2 q(r^2)` with the
minimax polynomials ``SINH`` and ``COSH``. The large terms, :math:`b + a r` or :math:`a + b r`, are added
as pairs. All terms are computed as halves and doubled at the end, because results may reach :math:`2^{1024}`.

**The inverse functions** are logarithms of 1 plus a term. The sum is a pair, as for log1p:

.. math::

    \mathrm{arsinh}\, t &= \log(1 + t + t^2 / (1 + \sqrt{1 + t^2})) \\
    \mathrm{arcosh}\, x &= \log(1 + d + \sqrt{2d + d^2}), \qquad d = x - 1 \\
    \mathrm{artanh}\, t &= \tfrac12 \log(1 + 2t / (1 - t))

for :math:`t = |x|`. For arguments from :math:`2^{28}` on, arsinh and arcosh are :math:`\log x + \log 2`. fdlibm has the same
formulas, on more ranges.

**Error budget**, in ulp of the result: the final rounding 1/2; for sinh and cosh the polynomials and their
rounding 1/4, and 1/2 for :math:`a` and :math:`b` of large arguments; for the inverse functions the term after 1,
up to 1, and the logarithm 1/4.
"""

from pymc_fastlogp.kernel.vecmath.exponential import BIAS, LN2, MANTISSA_BITS, reduce_by_ln2
from pymc_fastlogp.kernel.vecmath.logarithm import INF, NAN, log_of_sum
from pymc_fastlogp.kernel.vecmath.polynomials import COSH, SINH
from pymc_fastlogp.kernel.vecmath.vector import Floats, Pair, fast_two_sum, quotient, two_sum

# Slightly above the largest argument with finite sinh and cosh.
OVERFLOW = 710.5
# From this argument on 2**-k is negligible compared with 2**k.
ONE_SIDED = 40.0
# Below this magnitude sinh, arcsinh and arctanh of x are x to within half an ulp.
TINY = 2.0**-27
# From this argument on 1 is negligible compared with x**2.
LARGE = 2.0**28


def sinh(x: Floats) -> Floats:
    """Return the hyperbolic sine."""
    magnitude = x.magnitude()
    result = _by_addition(magnitude, is_odd=True).with_sign_of(x)
    return (magnitude < TINY).select(x, result)


def cosh(x: Floats) -> Floats:
    """Return the hyperbolic cosine."""
    return _by_addition(x.magnitude(), is_odd=False)


def arcsinh(x: Floats) -> Floats:
    """Return the inverse hyperbolic sine."""
    magnitude = x.magnitude()
    t = magnitude.at_most(LARGE)
    square = t * t
    rest = square / ((square + 1.0).sqrt() + 1.0)
    result = _log_one_plus(fast_two_sum(t, rest), magnitude).with_sign_of(x)
    return (magnitude < TINY).select(x, result)


def arccosh(x: Floats) -> Floats:
    """Return the inverse hyperbolic cosine, nan below 1."""
    d = x.at_most(LARGE) - 1.0
    rest = d.fma(d, d * 2.0).sqrt()
    result = _log_one_plus(two_sum(d, rest), x)
    return (x >= 1.0).select(result, NAN)


def arctanh(x: Floats) -> Floats:
    """Return the inverse hyperbolic tangent, inf at 1 and nan above."""
    t = x.magnitude()
    ratio = quotient(t * 2.0, fast_two_sum(1.0, -t))
    value = log_of_sum(two_sum(1.0, ratio)).rounded() * 0.5
    result = (t < 1.0).select(value, t.equals(1.0).select(INF, NAN)).with_sign_of(x)
    return (t < TINY).select(x, result)


def _by_addition(magnitude: Floats, is_odd: bool) -> Floats:
    """Return sinh(abs(x)) if odd, else cosh(abs(x)), by the addition theorems."""
    reduced = reduce_by_ln2(magnitude.at_most(OVERFLOW))
    # Quarters of the powers, because a and b are means and the result is computed as a half.
    up = ((reduced.k + (BIAS - 2)) << MANTISSA_BITS).as_floats()
    down = ((BIAS - 2 - reduced.k) << MANTISSA_BITS).as_floats()
    down = (magnitude < ONE_SIDED).select(down, 0.0)
    r = reduced.r.high
    square = r * r
    # sinh(r) = r + sinh_rest and cosh(r) = 1 + cosh_rest.
    sinh_rest = (r * square).fma(square.polynomial(SINH), reduced.r.low)
    cosh_rest = square.fma(square.polynomial(COSH), r * reduced.r.low)
    a, b = up + down, up - down
    of_cosh, of_sinh = (b, a) if is_odd else (a, b)
    product = of_sinh * r
    leading = fast_two_sum(of_cosh, product)
    rest = leading.low + of_sinh.fma(r, -product)
    rest = of_cosh.fma(cosh_rest, of_sinh.fma(sinh_rest, rest))
    return (leading.high + rest) * 2.0


def _log_one_plus(y: Pair, x: Floats) -> Floats:
    """Return ``log(1 + y)``, or ``log(2 x)`` where x is large."""
    total = two_sum(1.0, y.high)
    large = x >= LARGE
    low = large.select(0.0, total.low + y.low)
    log = log_of_sum(Pair(large.select(x, total.high), low))
    result = log.high + (log.low + large.select(LN2, 0.0))
    return (x < INF).select(result, x)
