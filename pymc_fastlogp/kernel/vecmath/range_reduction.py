r"""Range reduction by quarters of a turn, :math:`x = k \pi/2 + r`.

:math:`k` is the nearest integer to :math:`2x/\pi`, so that :math:`|r| \le \pi/4`.
With :math:`\pi/2 = c_1 + c_2 + c_3`, each the nearest double to what the ones before leave out,

.. math:: r = (x - k c_1) - k c_2 - k c_3

(Cody and Waite; Muller et al., Handbook of Floating-Point Arithmetic, 2nd ed., section 10.2). The
first difference is exact with a fused multiply-add: both terms are multiples of :math:`2^{-53}` if
:math:`k \ne 0`, and it is less than 1. The product with :math:`c_2` is a pair. So :math:`r` is a pair
whose error is about :math:`k\,2^{-160}`. No double comes closer to a multiple of :math:`\pi/2` than
:math:`2^{-62}` (Muller, Elementary Functions, 3rd ed., section 11.3), so that the digits of the pair do count.

**Huge arguments**, from :math:`2^{30}` on, need more digits of :math:`\pi`. In a log density they are next to
none, so there is a branch, taken if any lane has one, to :mod:`.payne_hanek` for one lane after the other.
"""

from collections.abc import Sequence

from llvmlite import ir

from pymc_fastlogp.kernel.llvm import I64
from pymc_fastlogp.kernel.vecmath import payne_hanek
from pymc_fastlogp.kernel.vecmath.exponential import ROUND_TO_INTEGER
from pymc_fastlogp.kernel.vecmath.logarithm import INF
from pymc_fastlogp.kernel.vecmath.vector import Floats, Integers, Pair, fast_two_sum, two_sum

TWO_OVER_PI = 0.6366197723675814
# pi/2: the nearest double, the nearest to the rest, and to the rest of that.
HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
HUGE = 2.0**30


def reduce_by_half_pi(x: Floats) -> tuple[Integers, Pair]:
    """Return k, right modulo 4, and r, nan where x is not finite."""
    magnitude = x.magnitude()
    huge = (magnitude >= HUGE) & (magnitude < INF)
    shifted, high, low = huge.where_any(_cody_waite(x), lambda: _by_lane(huge.select(x, HUGE)))
    return shifted.bits(), Pair(high, low)


def _cody_waite(x: Floats) -> Sequence[Floats]:
    """Return k + ROUND_TO_INTEGER and the parts of r, where ``|x| < 2**30``."""
    first, second, third = HALF_PI
    shifted = x.fma(TWO_OVER_PI, ROUND_TO_INTEGER)
    k = shifted - ROUND_TO_INTEGER
    product = k * second
    leading = two_sum(k.fma(-first, x), -product)
    rest = k.fma(third, k.fma(second, -product))
    r = fast_two_sum(leading.high, leading.low - rest)
    return shifted, r.high, r.low


def _by_lane(x: Floats) -> Sequence[Floats]:
    """Return the same for huge arguments."""
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
