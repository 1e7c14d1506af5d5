r"""Products, exponentials and logarithms of pairs (double-double numbers), for results that amplify the error of an argument.

An exponential multiplies the relative error of its argument by the argument. In :math:`e^{-x^2}` and :math:`x^y` the argument is
therefore a pair, which carries the rounding error.

**Logarithm.** :func:`extended_log` has a relative error of about :math:`2^{-64}`. With :math:`x = 2^k (1 + f)` as in :mod:`.logarithm`,

.. math::

    \log x = k \log 2 + 2 \operatorname{artanh} s, \qquad s = \frac{f}{2 + f}, \qquad
    \operatorname{artanh} s = s + s\,z\,(1/3 + z\,p(z)), \qquad z = s^2 < 0.0295

with the minimax polynomial ``ATANH`` (the series of fdlibm's ``e_pow.c``). Everything except the polynomial is
computed in pairs. The polynomial is about 1/5 and is multiplied by :math:`z^2 < 2^{-10}`, so its rounding errors are about :math:`2^{-65}` each.
"""

from pymc_fastlogp.kernel.vecmath.exponential import (
    EXP_HIGH,
    EXP_LOW,
    LN2_HIGH,
    LN2_LOW,
    Reduced,
    reduce_by_ln2,
)
from pymc_fastlogp.kernel.vecmath.logarithm import Split, split_exponent, split_normal
from pymc_fastlogp.kernel.vecmath.polynomials import ATANH
from pymc_fastlogp.kernel.vecmath.vector import Floats, Pair, fast_two_sum

# 1/3 as a pair.
THIRD = (0.3333333333333333, 1.850371707708594e-17)


def product(x: Floats, y: Floats) -> Pair:
    """Return the product, exact unless it overflows or is subnormal."""
    high = x * y
    return Pair(high, x.fma(y, -high))


def product_of_pairs(x: Pair, y: Pair) -> Pair:
    """Return the product, with a relative error of about 2**-104."""
    leading = product(x.high, y.high)
    return Pair(leading.high, x.high.fma(y.low, x.low.fma(y.high, leading.low)))


def reduce_pair_by_ln2(x: Pair) -> Reduced:
    """Write the pair as ``k log(2) + r``, clipped to the range in which the exponential is neither 0 nor inf."""
    high = x.high.at_least(EXP_LOW).at_most(EXP_HIGH)
    # Drop the correction of a clipped argument: it may be nan if the argument is infinite.
    low = high.equals(x.high).select(x.low, 0.0)
    reduced = reduce_by_ln2(high)
    return Reduced(reduced.k, fast_two_sum(reduced.r.high, reduced.r.low + low))


def exp_of_remainder(reduced: Reduced) -> Pair:
    """Return exp(r)."""
    expm1 = reduced.expm1()
    leading = fast_two_sum(1.0, expm1.high)
    return fast_two_sum(leading.high, leading.low + expm1.low)


def extended_log(x: Floats) -> Pair:
    """Return log(x) for finite positive x; the result for other x is unspecified."""
    return _extended_log(split_exponent(x))


def extended_log_of_normal(x: Floats) -> Pair:
    """Return log(x) for normal positive x; the result for other x is unspecified."""
    return _extended_log(split_normal(x))


def _extended_log(split: Split) -> Pair:
    s = _ratio(split.f)
    z = product_of_pairs(s, s)
    p = z.high.polynomial(ATANH)
    factor = fast_two_sum(THIRD[0], z.high * p)
    factor = Pair(factor.high, z.low.fma(p, factor.low + THIRD[1]))
    rest = product_of_pairs(s, product_of_pairs(z, factor))
    artanh = fast_two_sum(s.high, rest.high)
    near_one = Pair(artanh.high * 2.0, (artanh.low + (s.low + rest.low)) * 2.0)
    leading = fast_two_sum(split.k * LN2_HIGH, near_one.high)
    return Pair(leading.high, leading.low + split.k.fma(LN2_LOW, near_one.low))


def _ratio(f: Floats) -> Pair:
    """Return ``f / (2 + f)``."""
    denominator = fast_two_sum(2.0, f)
    reciprocal = 1.0 / denominator.high
    s = f * reciprocal
    remainder = (-s).fma(denominator.low, (-s).fma(denominator.high, f))
    return Pair(s, remainder * reciprocal)
