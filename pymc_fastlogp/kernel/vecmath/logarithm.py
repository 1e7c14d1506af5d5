r"""Logarithms: log, log1p, log2, log10.

Write :math:`x = 2^k m` with :math:`\sqrt{1/2} \le m < \sqrt 2`; integer operations on the bits do it, after
multiplication by :math:`2^{54}` where x is subnormal. :math:`f = m - 1` is exact, and

.. math:: \log x = k \log 2 + f - f^2/2 + f^3 p(f)

with the minimax polynomial ``LOG``. There is no division (compare fdlibm's :math:`f/(2+f)`): on vectors
it would cost more than the longer polynomial. :math:`k \log 2` is split in two as in
:mod:`.exponential`, its leading part is exact, and its sum with :math:`f` is kept as a pair (Muller,
Elementary Functions, 3rd ed., section 11; Tang 1990 for the bookkeeping).

**log1p** takes :math:`u = 1 + x` and the exact rounding error of that sum,
:math:`c`, and adds :math:`2^{-k} c` to :math:`f`. For :math:`k = 0` this gives back :math:`f = x`, so small x needs no
special case.

**log2 and log10** multiply the pair by :math:`1/\log b`, itself a pair, and add :math:`k \log_b 2`; powers of
two and of ten come out exact.

**Error budget** in ulp of the result: the final rounding 1/2, the terms from :math:`f^2/2` on 1/3,
for :math:`|f|` near 0.41 and :math:`k = 0`.
"""

from dataclasses import dataclass

from pymc_fastlogp.kernel.vecmath.exponential import BIAS, LN2_HIGH, LN2_LOW, MANTISSA_BITS
from pymc_fastlogp.kernel.vecmath.polynomials import LOG
from pymc_fastlogp.kernel.vecmath.vector import Floats, Integers, Pair, fast_two_sum, two_sum

INF, NAN = float("inf"), float("nan")
SMALLEST_NORMAL = 2.0**-1022
SUBNORMAL_SHIFT = 54
MANTISSA_MASK = 2**MANTISSA_BITS - 1
SQRT_HALF_BITS = 0x3FE6_A09E_667F_3BCD
# The bits of 2**52: an integer below 2**52 in the mantissa makes 2**52 plus the integer.
TWO_52_BITS = 0x4330_0000_0000_0000
TWO_52 = 2.0**52

# Leading parts with trailing zeros, of which every exponent is an exact multiple.
LOG10_2_HIGH, LOG10_2_LOW = 0.30102999566406652, -8.5323443170571066e-14
LOG10_E = (0.4342944819032518, 1.098319650216765e-17)
LOG2_E = (1.4426950408889634, 2.0355273740931033e-17)


@dataclass(frozen=True)
class Split:
    """``x = 2**k (1 + f)``.

    Attributes
    ----------
    biased : Integers
        ``k + 1023`` (plus 54 where x is subnormal).
    k : Floats
        The exponent.
    f : Floats
        From sqrt(1/2) - 1 to sqrt(2) - 1, exact.
    """

    biased: Integers
    k: Floats
    f: Floats

    def shrink(self, x: Floats) -> Floats:
        """Return ``x / 2**k``, or 0 for k = 1024, whose reciprocal is subnormal."""
        return x * ((2 * BIAS + 1 - self.biased) << MANTISSA_BITS).as_floats() * 0.5


def log(x: Floats) -> Floats:
    """Return the natural logarithm."""
    return with_edges(x, log_pair(x).rounded())


def log1p(x: Floats) -> Floats:
    """Return log(1 + x)."""
    one_plus_x = two_sum(1.0, x)
    result = log_of_sum(one_plus_x).rounded()
    return with_edges(one_plus_x.high, result).with_sign_of(x)


def log2(x: Floats) -> Floats:
    """Return the logarithm to base 2."""
    split = split_exponent(x)
    return with_edges(x, _to_base(split.k, 0.0, split.f, LOG2_E))


def log10(x: Floats) -> Floats:
    """Return the logarithm to base 10."""
    split = split_exponent(x)
    leading, rest = split.k * LOG10_2_HIGH, split.k * LOG10_2_LOW
    return with_edges(x, _to_base(leading, rest, split.f, LOG10_E))


def log_pair(x: Floats) -> Pair:
    """Return log(x) for finite positive x, and anything for other x."""
    split = split_exponent(x)
    return _natural(split.k, split.f, 0.0)


def log_of_sum(x: Pair) -> Pair:
    """Return log(x) of a positive pair, whose correction is zero where it is subnormal."""
    split = split_exponent(x.high)
    f = fast_two_sum(split.f, split.shrink(x.low))
    return _natural(split.k, f.high, f.low)


def split_exponent(x: Floats) -> Split:
    """Write positive x as ``2**k (1 + f)``."""
    subnormal = x < SMALLEST_NORMAL
    bits = subnormal.select(x * 2.0**SUBNORMAL_SHIFT, x).bits()
    from_sqrt_half = bits - (SQRT_HALF_BITS - (BIAS << MANTISSA_BITS))
    biased = from_sqrt_half >> MANTISSA_BITS
    mantissa = ((from_sqrt_half & MANTISSA_MASK) + SQRT_HALF_BITS).as_floats()
    offset = subnormal.select(TWO_52 + BIAS + SUBNORMAL_SHIFT, TWO_52 + BIAS)
    return Split(biased, (biased | TWO_52_BITS).as_floats() - offset, mantissa - 1.0)


def with_edges(x: Floats, result: Floats) -> Floats:
    """Return the result for x in (0, inf), and inf, -inf, nan at inf, 0 and elsewhere."""
    positive = x > 0.0
    edge = positive.select(INF, x.equals(0.0).select(-INF, NAN))
    return (positive & (x < INF)).select(result, edge)


def _tail(f: Floats) -> Floats:
    """Return ``log(1 + f) - f``."""
    return f * f * f.fma(f.polynomial(LOG), -0.5)


def _natural(k: Floats, f: Floats, low: Floats | float) -> Pair:
    """Return ``k log(2) + log(1 + f + low)``."""
    leading = fast_two_sum(k * LN2_HIGH, f)
    return Pair(leading.high, k.fma(LN2_LOW, leading.low + (_tail(f) + low)))


def _to_base(
    leading: Floats, rest: Floats | float, f: Floats, per_e: tuple[float, float]
) -> Floats:
    """Return ``leading + rest + log(1 + f) * per_e``."""
    high, low = per_e
    product = f * high
    error = f.fma(high, -product) + f * low
    total = fast_two_sum(leading, product)
    return total.high + (total.low + (_tail(f).fma(high, error) + rest))
