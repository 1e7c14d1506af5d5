r"""Logarithms: log, log1p, log2, log10.

Write :math:`x = 2^k m` with :math:`\sqrt{1/2} \le m < \sqrt 2`, by integer operations on the bits. A subnormal x is first multiplied by
:math:`2^{54}`. A separate branch handles every x that is not a normal positive number, if a lane has one. :math:`f = m - 1` is exact, and

.. math:: \log x = k \log 2 + f - f^2/2 + f^3 p(f)

with the minimax polynomial ``LOG``. fdlibm divides, :math:`f/(2+f)`; on vectors a division costs more than the
longer polynomial. :math:`k \log 2` is split in two as in :mod:`.exponential`. The leading part is exact, and its sum with :math:`f` is a pair
(Muller, Elementary Functions, 3rd ed., section 11; Tang 1990 for the error analysis).

**log1p** uses :math:`u = 1 + x` and the exact rounding error :math:`c` of this sum. To first order :math:`\log(1 + f + 2^{-k} c) = \log(1 + f) + 2^{-k} c\,(1 - f)`; the next term is below
:math:`2^{-53} f^2`. Where :math:`u = 1` this gives back :math:`c = x`, so small x needs no special case.

**log2 and log10** multiply the pair by the pair :math:`1/\log b`, and add :math:`k \log_b 2`. The logarithms of powers of the base are exact.

**Error budget** in ulp of the result: the final rounding 1/2, the terms from :math:`f^2/2` on 1/3,
for :math:`|f|` near 0.41 and :math:`k = 0`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pymc_fastlogp.kernel.vecmath.exponential import BIAS, LN2_HIGH, LN2_LOW, MANTISSA_BITS
from pymc_fastlogp.kernel.vecmath.polynomials import LOG
from pymc_fastlogp.kernel.vecmath.vector import Floats, Integers, Pair, call_outlined, fast_two_sum

INF, NAN = float("inf"), float("nan")
SMALLEST_NORMAL = 2.0**-1022
# The bits of 2**-1022, 2**1022 and inf.
SMALLEST_NORMAL_BITS = 0x0010_0000_0000_0000
HUGE_BITS = 0x7FD0_0000_0000_0000
INF_BITS = 0x7FF0_0000_0000_0000
SUBNORMAL_SHIFT = 54
MANTISSA_MASK = 2**MANTISSA_BITS - 1
SQRT_HALF_BITS = 0x3FE6_A09E_667F_3BCD
# The bits of 2**52: an integer below 2**52 in the mantissa makes 2**52 plus the integer.
TWO_52_BITS = 0x4330_0000_0000_0000
TWO_52 = 2.0**52

# log10(2) with trailing zeros in the leading part, whose product with every exponent is exact; log10(e) and log2(e) as pairs.
LOG10_2_HIGH, LOG10_2_LOW = 0.30102999566406652, -8.5323443170571066e-14
LOG10_E = (0.4342944819032518, 1.098319650216765e-17)
LOG2_E = (1.4426950408889634, 2.0355273740931033e-17)


@dataclass(frozen=True)
class Split:
    """``x = 2**k (1 + f)``, with an exact f from sqrt(1/2) - 1 to sqrt(2) - 1.

    ``biased`` is ``k + 1023``, plus 54 where x is subnormal.
    """

    biased: Integers
    k: Floats
    f: Floats

    def shrink(self, x: Floats) -> Floats:
        """Return ``x / 2**k``, or 0 for k = 1024, where ``2**-k`` is subnormal."""
        return x * ((2 * BIAS + 1 - self.biased) << MANTISSA_BITS).as_floats() * 0.5


def log(x: Floats) -> Floats:
    """Return the natural logarithm."""
    return _by_split("log", x, lambda split: _natural(split.k, split.f, 0.0).rounded())


def log_reciprocal(x: Floats) -> tuple[Floats, Floats]:
    """Return the logarithm and its derivative; the division overlaps with the polynomial."""
    return log(x), x.reciprocal()


def log1p(x: Floats) -> Floats:
    """Return log(1 + x)."""
    u = fast_two_sum(x.at_least(1.0), x.at_most(1.0))
    rare = u.high.bits().is_outside(SMALLEST_NORMAL_BITS, HUGE_BITS)
    usual = log_of_normal_sum(u).rounded()
    (result,) = rare.where_any([usual], lambda: [log(u.high)])
    return result.with_sign_of(x)


def log2(x: Floats) -> Floats:
    """Return the logarithm to base 2."""
    return _by_split("log2", x, lambda split: _to_base(split.k, 0.0, split.f, LOG2_E))


def log10(x: Floats) -> Floats:
    """Return the logarithm to base 10."""

    def formula(split: Split) -> Floats:
        leading, rest = split.k * LOG10_2_HIGH, split.k * LOG10_2_LOW
        return _to_base(leading, rest, split.f, LOG10_E)

    return _by_split("log10", x, formula)


def log_pair(x: Floats) -> Pair:
    """Return log(x) for finite positive x; the result for other x is unspecified."""
    split = split_exponent(x)
    return _natural(split.k, split.f, 0.0)


def split_log_of_normal(x: Floats) -> Pair:
    """Return log(x) as the exact ``k log(2)`` and the rest, whose error is at most 2**-54."""
    split = split_normal(x)
    k, f = split.k, split.f
    return Pair(k * LN2_HIGH, k.fma(LN2_LOW, (f * f).fma(_tail_over_square(f), f)))


def log_of_normal_sum(x: Pair) -> Pair:
    """Return log(x) of a pair from 2**-1022 to 2**1022, whose correction is below half an ulp."""
    split = split_normal(x.high)
    correction = x.low * ((2 * BIAS - split.biased) << MANTISSA_BITS).as_floats()
    # To first order: c / (1 + f) is c - f c.
    return _natural(split.k, split.f, (-split.f).fma(correction, correction))


def log_of_sum(x: Pair) -> Pair:
    """Return log(x) of a positive pair, whose correction is zero where it is subnormal."""
    split = split_exponent(x.high)
    f = fast_two_sum(split.f, split.shrink(x.low))
    return _natural(split.k, f.high, f.low)


def split_exponent(x: Floats) -> Split:
    """Write positive x as ``2**k (1 + f)``."""
    subnormal = x < SMALLEST_NORMAL
    split = split_normal(subnormal.select(x * 2.0**SUBNORMAL_SHIFT, x))
    return Split(split.biased, split.k - subnormal.select(float(SUBNORMAL_SHIFT), 0.0), split.f)


def split_normal(x: Floats) -> Split:
    """Write normal positive x as ``2**k (1 + f)``."""
    from_sqrt_half = x.bits() - (SQRT_HALF_BITS - (BIAS << MANTISSA_BITS))
    biased = from_sqrt_half >> MANTISSA_BITS
    mantissa = ((from_sqrt_half & MANTISSA_MASK) + SQRT_HALF_BITS).as_floats()
    return Split(biased, (biased | TWO_52_BITS).as_floats() - (TWO_52 + BIAS), mantissa - 1.0)


def with_edges(x: Floats, result: Floats) -> Floats:
    """Return the result for x in (0, inf), inf at inf, -inf at 0, and nan elsewhere."""
    positive = x > 0.0
    edge = positive.select(INF, x.equals(0.0).select(-INF, NAN))
    return (positive & (x < INF)).select(result, edge)


def _by_split(name: str, x: Floats, formula: Callable[[Split], Floats]) -> Floats:
    """Apply a formula to normal positive x; a branch handles other x, if a lane has one."""
    rare = x.bits().is_outside(SMALLEST_NORMAL_BITS, INF_BITS)

    def anywhere(x: Floats) -> Floats:
        return with_edges(x, formula(split_exponent(x)))

    usual = formula(split_normal(x))
    (result,) = rare.where_any([usual], lambda: [call_outlined(name, anywhere, x)])
    return result


def _tail_over_square(f: Floats) -> Floats:
    """Return ``(log(1 + f) - f) / f**2``."""
    return f.fma(f.polynomial(LOG), -0.5)


def _natural(k: Floats, f: Floats, low: Floats | float) -> Pair:
    """Return ``k log(2) + log(1 + f + low)``."""
    leading = fast_two_sum(k * LN2_HIGH, f)
    rest = (f * f).fma(_tail_over_square(f), leading.low + low)
    return Pair(leading.high, k.fma(LN2_LOW, rest))


def _to_base(
    leading: Floats, rest: Floats | float, f: Floats, per_e: tuple[float, float]
) -> Floats:
    """Return ``leading + rest + log(1 + f) * per_e``."""
    high, low = per_e
    product = f * high
    error = f.fma(high, -product) + f * low
    total = fast_two_sum(leading, product)
    tail = f * f * _tail_over_square(f)
    return total.high + (total.low + (tail.fma(high, error) + rest))
