r"""Powers and sums of exponentials: pow, integer and half-integer powers, logaddexp.

**pow** is :math:`|x|^y = e^{y \log |x|}`, with the sign of :math:`x` where :math:`y` is an odd integer. The
exponential multiplies the relative error of its argument by up to 745. So the logarithm is a pair with an error of :math:`2^{-64}`, and
its product with :math:`y` is a pair. A branch handles bases that are not normal positive numbers. Special cases follow C99 (annex F.9.4.4):

- :math:`y` is limited to :math:`2^{65}` in magnitude, where the power of any base but 1 is already 0 or infinite.
- The logarithms of zero and infinity are infinite.
- The power is 1 for the base 1 and for the exponent 0.
- The power is nan for a negative base with an exponent that is not an integer.

Among normal positive bases only 1 is special, for a nan exponent.

**integer_power** replaces pow if all lanes have the same small constant exponent; it takes a few multiplications. Let each rounding err by
:math:`\varepsilon \le` 1/2 ulp. The error of :math:`x^2 x` is at most 1.5 ulp, and the error of :math:`(x^2)^2` at most 1.92 ulp: if the rounded
square has the mantissa :math:`1 \le m < 2`, its square has the error :math:`2 m \varepsilon` plus its own rounding, in units that
double at :math:`m = \sqrt 2`. The same holds for :math:`(1/x)^2`. Other exponents square pairs, whose relative error of
:math:`2^{-100}` does not affect the final rounding.

**half_integer_power** replaces pow for the constants :math:`\pm 1/2` and :math:`\pm 3/2`, which occur in derivatives of roots and precisions. It
computes :math:`\sqrt x`, :math:`x \sqrt x` or a reciprocal, with at most three successive roundings and an error of at most 2 ulp.

**logaddexp** is :math:`\log(e^a + e^b) = \max(a, b) + \log(1 + e^{-|a - b|})`. The two terms cancel along a curve where the result is zero.
The difference, its exponential, the logarithm and the sum are pairs, so the absolute error there is about :math:`2^{-55}`.

**Error budget** of pow in ulp of the result: the logarithm times :math:`y` 1/4, the exponential 1/3, the
final rounding 1/2.
"""

from collections.abc import Sequence

from llvmlite import ir

from pymc_fastlogp.kernel.vecmath.compensated import (
    exp_of_remainder,
    extended_log,
    extended_log_of_normal,
    product,
    product_of_pairs,
    reduce_pair_by_ln2,
)
from pymc_fastlogp.kernel.vecmath.exponential import power_of_two
from pymc_fastlogp.kernel.vecmath.logarithm import (
    INF,
    INF_BITS,
    NAN,
    SMALLEST_NORMAL_BITS,
    log_of_normal_sum,
    with_edges,
)
from pymc_fastlogp.kernel.vecmath.vector import (
    Floats,
    Mask,
    Pair,
    call_outlined,
    fast_two_sum,
    two_sum,
)

# With a larger exponent the power of every base but 1 is 0 or inf.
LARGEST_EXPONENT = 2.0**65
# Exponents whose powers need no pairs, and exponents for which multiplication is faster than pow.
PLAIN_EXPONENTS, INTEGER_EXPONENTS = range(-2, 5), range(-16, 17)
HALF_EXPONENTS = (-1.5, -0.5, 0.5, 1.5)


def power(x: Floats, y: Floats) -> Floats:
    """Return x to the power of y."""
    n = _constant(y)
    if n is not None and n in INTEGER_EXPONENTS:
        return integer_power(x, int(n))
    if n is not None and n in HALF_EXPONENTS:
        return half_integer_power(x, n)
    rare = x.bits().is_outside(SMALLEST_NORMAL_BITS, INF_BITS)
    (result,) = rare.where_any(
        [_power_of_normal(x, y)], lambda: [call_outlined("pow", _power, x, y)]
    )
    return result


def _power_of_normal(x: Floats, y: Floats) -> Floats:
    """Return x to the power of y for normal positive x; an exponent of 0 needs no special case, because the logarithm is finite."""
    log = extended_log_of_normal(x)
    exponent = y.at_least(-LARGEST_EXPONENT).at_most(LARGEST_EXPONENT)
    argument = product(exponent, log.high)
    argument = Pair(argument.high, exponent.fma(log.low, argument.low))
    return x.equals(1.0).select(1.0, reduce_pair_by_ln2(argument).exp())


def _power(x: Floats, y: Floats) -> Floats:
    """Return x to the power of y for any x."""
    magnitude = x.magnitude()
    log = extended_log(magnitude)
    exponent = y.at_least(-LARGEST_EXPONENT).at_most(LARGEST_EXPONENT)
    argument = product(exponent, with_edges(magnitude, log.high))
    argument = Pair(argument.high, exponent.fma(log.low, argument.low))
    result = reduce_pair_by_ln2(argument).exp()
    result = (y.equals(0.0) | x.equals(1.0)).select(1.0, result)
    integer = _is_integer(y)
    result = (integer & ~_is_integer(y * 0.5)).select(result.with_sign_of(x), result)
    return ((x < 0.0) & (x > -INF) & ~integer).select(NAN, result)


def integer_power(x: Floats, n: int) -> Floats:
    """Return x to the power of a constant integer."""
    base = x if n >= 0 else 1.0 / x
    if n in PLAIN_EXPONENTS:
        return _plain_power(base, abs(n))
    result = _compensated_power(base, abs(n))
    low = result.low
    if n < 0:
        # The relative error of the base: 1/x = base (1 + error).
        error = (-base).fma(x, 1.0)
        low = result.high.fma(error * abs(n), low)
    # The correction may be nan where the power is 0 or inf.
    power = result.high + (low.magnitude() < INF).select(low, 0.0)
    return power.with_sign_of(x) if n % 2 else power


def half_integer_power(x: Floats, n: float) -> Floats:
    """Return x to the power of a constant, one of ``HALF_EXPONENTS``."""
    # C's pow treats -0.0 as 0.0 and -inf as inf here, unlike sqrt.
    base = x.equals(-INF).select(INF, x + 0.0)
    root = base.sqrt()
    if n > 0:
        return root if n < 1 else base * root
    # Divide twice: the product overflows where its reciprocal is still representable.
    return 1.0 / root if n > -1 else 1.0 / root / base


def logaddexp(a: Floats, b: Floats) -> Floats:
    """Return log(exp(a) + exp(b))."""
    a_larger = a > b
    larger, smaller = a_larger.select(a, b), a_larger.select(b, a)
    reduced = reduce_pair_by_ln2(two_sum(smaller, -larger))
    exp, scale = exp_of_remainder(reduced), power_of_two(reduced.k)
    sum_ = fast_two_sum(1.0, exp.high * scale.first * scale.second)
    log = log_of_normal_sum(Pair(sum_.high, exp.low.fma(scale.first * scale.second, sum_.low)))
    leading = two_sum(larger, log.high)
    result = leading.high + (leading.low + log.low)
    result = larger.magnitude().equals(INF).select(larger, result)
    return (a.is_nan() | b.is_nan()).select(NAN, result)


def _constant(x: Floats) -> float | None:
    """Return the number if all lanes are the same constant, else None."""
    value = x.value
    if isinstance(value, ir.CastInstr) and value.opname == "sitofp":
        (value,) = value.operands
    if not isinstance(value, ir.Constant) or not isinstance(value.constant, Sequence):
        return None
    number, *others = {element.constant for element in value.constant}
    return None if others or not isinstance(number, int | float) else float(number)


def _is_integer(x: Floats) -> Mask:
    """Return where x is an integer or infinite."""
    return x.nearest_integer().equals(x)


def _plain_power(x: Floats, n: int) -> Floats:
    """Return x to the power of n <= 4."""
    if n == 0:
        return x.filled(1.0)
    if n == 1:
        return x
    square = x * x
    return {2: square, 3: square * x, 4: square * square}[n]


def _compensated_power(x: Floats, n: int) -> Pair:
    """Return x to the power of n >= 2, as a pair."""
    if n == 2:
        return product(x, x)
    if n % 2 == 0:
        half = _compensated_power(x, n // 2)
        return product_of_pairs(half, half)
    rest = _compensated_power(x, n - 1)
    leading = product(rest.high, x)
    return Pair(leading.high, rest.low.fma(x, leading.low))
