r"""Exponentials: exp, exp2, expm1.

Write :math:`x = k \log 2 + r` with :math:`k` the nearest integer to :math:`x / \log 2`, so that
:math:`|r| \le \log(2)/2` and :math:`e^x = 2^k e^r`. Cody and Waite's subtraction keeps
:math:`r` accurate. :math:`\log 2` is split into a rest and a leading part. Trailing zeros make the product of the leading part with every :math:`k`
in range exact (Muller et al., Handbook of Floating-Point Arithmetic, 2nd ed., section 10.2). Adding :math:`1.5 \cdot 2^{52}`
rounds to the nearest integer and leaves that integer in the low bits. Then

.. math:: e^r - 1 = r + r^2 p(r)

with the minimax polynomial ``EXP``. For exp2, :math:`r = x - k` is exact and :math:`2^r - 1 = r\,p(r)`.

**Scaling.** :math:`2^k` is applied as two factors of about :math:`2^{k/2}`, both normal numbers. The first
product rounds as usual. The second rounds to a subnormal number or overflows as the result should, so there is no special case.

**expm1** is :math:`2^k (e^r - 1) + (2^k - 1)`. The product :math:`2^k r` is exact, and so is :math:`2^k - 1` for :math:`|k| \le 53`. Their sum
is a pair. All terms are computed as halves and doubled at the end, because :math:`2^{1024}` overflows.

**Error budget**, in ulp of the result: the final rounding 1/2; the rounding of :math:`e^r - 1`, 1/4 where
:math:`e^r` is near 0.7; the polynomial, the product with :math:`r^2` and the coefficients 1/4. The
rounding error of :math:`r` is corrected. In exp2 :math:`r` is exact, but the polynomial adds a larger error.
"""

from dataclasses import dataclass

from pymc_fastlogp.kernel.vecmath.polynomials import EXP, EXP2
from pymc_fastlogp.kernel.vecmath.vector import Floats, Integers, Pair, fast_two_sum

INVERSE_LN2 = 1.4426950408889634
# log(2), and log(2) split into its first 32 bits and the rest.
LN2 = 0.6931471805599453
LN2_HIGH = 0.6931471803691238
LN2_LOW = 1.9082149292705877e-10

ROUND_TO_INTEGER = 1.5 * 2.0**52
ROUND_TO_INTEGER_BITS = 0x4338_0000_0000_0000
MANTISSA_BITS = 52
BIAS = 1023

# Arguments are clipped to these bounds, where exp has underflowed to 0 or overflowed to inf.
EXP_LOW, EXP_HIGH = -746.0, 710.0
EXP2_LOW, EXP2_HIGH = -1076.0, 1025.0
# expm1(x) is -1 below the first, and x to within half an ulp for magnitudes below the second.
EXPM1_LOW, EXPM1_TINY = -40.0, 2.0**-54


@dataclass(frozen=True)
class Scale:
    """The power of two 2**k as a product of two normal numbers, applied in two steps."""

    first: Floats
    second: Floats

    def times_one_plus(self, x: Floats) -> Floats:
        """Return ``2**k (1 + x)``, with one rounding, or two if the result is subnormal."""
        return self.first.fma(x, self.first) * self.second


@dataclass(frozen=True)
class Reduced:
    """``x = k log(2) + r``, with ``|r| <= log(2)/2``."""

    k: Integers
    r: Pair

    def expm1(self) -> Pair:
        """Return ``exp(r) - 1`` as ``r`` and a correction."""
        r = self.r.high
        return Pair(r, (r * r).fma(r.polynomial(EXP), self.r.low))

    def rounded_expm1(self) -> Floats:
        """Return ``exp(r) - 1`` as one double, ignoring the low part of r."""
        r = self.r.high
        return (r * r).fma(r.polynomial(EXP), r)

    def exp(self) -> Floats:
        """Return ``exp(x)``, for k from -2044 to 2046."""
        return power_of_two(self.k).times_one_plus(self.expm1().rounded())


def exp(x: Floats) -> Floats:
    """Return e to the power of x."""
    return reduce_by_ln2(x.at_least(EXP_LOW).at_most(EXP_HIGH)).exp()


def exp2(x: Floats) -> Floats:
    """Return 2 to the power of x."""
    x = x.at_least(EXP2_LOW).at_most(EXP2_HIGH)
    shifted = x + ROUND_TO_INTEGER
    r = x - (shifted - ROUND_TO_INTEGER)
    return power_of_two(_low_bits(shifted)).times_one_plus(r * r.polynomial(EXP2))


def expm1(x: Floats) -> Floats:
    """Return exp(x) - 1."""
    half = half_expm1(reduce_by_ln2(x.at_least(EXPM1_LOW).at_most(EXP_HIGH)))
    doubled = half.rounded() * 2.0
    # For tiny x half of the result may underflow, and a zero would lose its sign.
    return (x.magnitude() < EXPM1_TINY).select(x, doubled)


def reduce_by_ln2(x: Floats) -> Reduced:
    """Write ``x`` as ``k log(2) + r``, for ``|x| < 2**20``."""
    shifted = x.fma(INVERSE_LN2, ROUND_TO_INTEGER)
    k = shifted - ROUND_TO_INTEGER
    leading = k.fma(-LN2_HIGH, x)
    r = k.fma(-LN2_LOW, leading)
    return Reduced(_low_bits(shifted), Pair(r, k.fma(-LN2_LOW, leading - r)))


def half_expm1(reduced: Reduced) -> Pair:
    """Return half of ``exp(k log(2) + r) - 1``, for k from -60 to 1024."""
    half = half_power_of_two(reduced.k)
    expm1 = reduced.expm1()
    leading = fast_two_sum(half - 0.5, half * expm1.high)
    return Pair(leading.high, half.fma(expm1.low, leading.low))


def half_power_of_two(k: Integers) -> Floats:
    """Return ``2**(k - 1)`` for k from -1021 to 1024."""
    return ((k + (BIAS - 1)) << MANTISSA_BITS).as_floats()


def _low_bits(shifted: Floats) -> Integers:
    """Return the integer in the low bits of a sum with ROUND_TO_INTEGER."""
    return shifted.bits() - ROUND_TO_INTEGER_BITS


def power_of_two(k: Integers) -> Scale:
    """Return ``2**k`` for k from -2044 to 2046."""
    biased_twice = k + 2 * BIAS
    first = biased_twice >> 1
    second = biased_twice - first
    return Scale((first << MANTISSA_BITS).as_floats(), (second << MANTISSA_BITS).as_floats())
