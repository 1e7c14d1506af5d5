r"""Range reduction modulo :math:`\pi/2`: :math:`x = k \pi/2 + r`.

:math:`k` is the nearest integer to :math:`2x/\pi`, so that :math:`|r| \le \pi/4`.
With :math:`\pi/2 = c_1 + c_2 + c_3`, each the double nearest to the remainder of the preceding constants,

.. math:: r = (x - k c_1) - k c_2 - k c_3

(Cody and Waite; Muller et al., Handbook of Floating-Point Arithmetic, 2nd ed., section 10.2). The
first difference is exact with a fused multiply-add: both terms are multiples of :math:`2^{-53}` if
:math:`k \ne 0`, and the difference is less than 1. The product with :math:`c_2` is a pair. So :math:`r` is a pair
with an error of about :math:`k\,2^{-160}`. No double is closer to a multiple of :math:`\pi/2` than :math:`2^{-62}` (Muller,
Elementary Functions, 3rd ed., section 11.3), so the relative error of :math:`r` is small.

**Huge arguments**, from :math:`2^{30}` on, need more digits of :math:`\pi`. They are very rare in a log density, so a branch calls
:mod:`.payne_hanek` lane by lane, if any lane is huge.
"""

from collections.abc import Sequence

from llvmlite import ir

from pymc_fastlogp.kernel.llvm import I64
from pymc_fastlogp.kernel.vecmath import payne_hanek
from pymc_fastlogp.kernel.vecmath.exponential import ROUND_TO_INTEGER
from pymc_fastlogp.kernel.vecmath.logarithm import INF
from pymc_fastlogp.kernel.vecmath.vector import Floats, Integers, Pair, fast_two_sum, two_sum

TWO_OVER_PI = 0.6366197723675814
# pi/2 as a sum of three doubles: c1, c2 and c3.
HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
HUGE = 2.0**30


def reduce_by_half_pi(x: Floats) -> tuple[Integers, Pair]:
    """Return k, correct modulo 4, and r, which is nan where x is not finite."""
    magnitude = x.magnitude()
    huge = (magnitude >= HUGE) & (magnitude < INF)
    shifted, high, low = huge.where_any(
        _cody_waite(x), lambda: _payne_hanek_by_lane(huge.select(x, HUGE))
    )
    return shifted.bits(), Pair(high, low)


def _cody_waite(x: Floats) -> Sequence[Floats]:
    """Return k + ROUND_TO_INTEGER and the two parts of r for ``|x| < 2**30``."""
    first, second, third = HALF_PI
    shifted = x.fma(TWO_OVER_PI, ROUND_TO_INTEGER)
    k = shifted - ROUND_TO_INTEGER
    product = k * second
    leading = two_sum(k.fma(-first, x), -product)
    rest = k.fma(third, k.fma(second, -product))
    r = fast_two_sum(leading.high, leading.low - rest)
    return shifted, r.high, r.low


def _payne_hanek_by_lane(x: Floats) -> Sequence[Floats]:
    """Return the results of :func:`_cody_waite` for huge arguments."""
    builder = x.builder
    function = payne_hanek.declare(builder.module)
    vectors: list[ir.Value] = [ir.Constant(x.value.type, ir.Undefined)] * 3
    for lane in map(I64, range(x.width)):
        result = builder.call(function, [builder.extract_element(x.value, lane)])
        for i, vector in enumerate(vectors):
            vectors[i] = builder.insert_element(vector, builder.extract_value(result, i), lane)
    k, high, low = (Floats(builder, vector) for vector in vectors)
    r = _times_half_pi(Pair(high, low))
    return k + ROUND_TO_INTEGER, r.high, r.low


def _times_half_pi(f: Pair) -> Pair:
    first, second, _ = HALF_PI
    product = f.high * first
    rest = f.high.fma(first, -product)
    return fast_two_sum(product, f.high.fma(second, f.low.fma(first, rest)))
