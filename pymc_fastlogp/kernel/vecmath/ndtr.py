r"""The standard normal distribution function ndtr and its logarithm log_ndtr.

For :math:`x \ge 0` let :math:`h(x) = \mathrm{erfcx}(x/\sqrt 2)/2`. Then

.. math::

    \Phi(-x) &= e^{-x^2/2} h(x), & \Phi(x) &= 1 - \Phi(-x) \\
    \log \Phi(-x) &= -x^2/2 + \log h(x), & \log \Phi(x) &= \log(1 - \Phi(-x))

so that no intermediate underflows before the result, and small results keep their digits on both sides.
:math:`h` has the formula of erfcx in :mod:`.erf`, with :math:`3 \sqrt 2` instead of 3 and :math:`1/\sqrt{2\pi}` instead of
:math:`1/\sqrt\pi`, so that :math:`x` is not divided by :math:`\sqrt 2`. log_ndtr evaluates
one logarithm, of the pair :math:`h` or of the pair :math:`1 - \Phi(-x)`.

**Error budget** in ulp of the result: the budget of erfc, and for log_ndtr also the budget of the logarithm.
"""

from pymc_fastlogp.kernel.vecmath.compensated import product
from pymc_fastlogp.kernel.vecmath.erf import (
    HalfLineConstants,
    erfcx_on_half_line,
    times_exp_of_minus,
)
from pymc_fastlogp.kernel.vecmath.logarithm import INF, NAN, log_of_normal_sum
from pymc_fastlogp.kernel.vecmath.vector import Floats, fast_two_sum, select_pair, two_sum

NORMAL_CONSTANTS = HalfLineConstants(
    (4.242640687119285, 3.7611501537150655e-16), (0.3989422804014327, -2.49232720227773e-17)
)
# ndtr is 0 below minus the first, log_ndtr -inf below minus the second.
NDTR_HIGH, LOG_NDTR_HIGH = 40.0, 1.8961503816218352e154


def ndtr(x: Floats) -> Floats:
    """Return the probability that a standard normal variable is less than x."""
    magnitude = x.magnitude().at_most(NDTR_HIGH)
    h = erfcx_on_half_line(magnitude, NORMAL_CONSTANTS)
    tail = times_exp_of_minus(product(magnitude * 0.5, magnitude), h).rounded()
    return (x > 0.0).select(1.0 - tail, tail)


def log_ndtr(x: Floats) -> Floats:
    """Return log(ndtr(x))."""
    magnitude = x.magnitude().at_most(LOG_NDTR_HIGH)
    h = erfcx_on_half_line(magnitude, NORMAL_CONSTANTS)
    half_square = product(magnitude * 0.5, magnitude)
    tail = times_exp_of_minus(half_square, h)
    above = fast_two_sum(1.0, -tail.high)
    above = fast_two_sum(above.high, above.low - tail.low)
    negative = x < 0.0
    log = log_of_normal_sum(select_pair(negative, h, above))
    leading = two_sum(negative.select(-half_square.high, 0.0), log.high)
    low = log.low - negative.select(half_square.low, 0.0)
    result = -(leading.high + (leading.low + low)).magnitude()
    result = (x < -LOG_NDTR_HIGH).select(-INF, result)
    return x.is_nan().select(NAN, result)
