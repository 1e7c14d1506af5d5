r"""The gamma family for any argument: gammaln, psi (digamma), trigamma.

**gammaln and psi** have three branches:

- 1/2 to :math:`2^{100}`, always evaluated (:mod:`.gamma_positive`);
- normal positive numbers below 1/2, evaluated if a lane is in this range (:mod:`.gamma_positive`);
- any other argument, evaluated if a lane has one.

The last branch evaluates the function at :math:`z = 1 + |x|` for :math:`x < 1/2` and :math:`z = x` otherwise. The recurrence gives the value for
:math:`0 < x < 1/2`, and the reflection formulas give the value for :math:`x < 0`:

.. math::

    \log\Gamma(x) &= \log\Gamma(z) - \log x, &
    \log|\Gamma(x)| &= -\log\Gamma(z) - \log|\sin(\pi x)/\pi| \\
    \psi(x) &= \psi(z) - 1/x, & \psi(x) &= \psi(z) - \pi \cot(\pi x) \\
    \psi'(x) &= \psi'(z) + 1/x^2, & \psi'(x) &= (\pi / \sin(\pi x))^2 - \psi'(z)

Sine and cotangent have period :math:`\pi` up to sign, so :math:`x` is replaced by its exact distance
:math:`f` from the nearest integer: :math:`\sin(\pi f)/\pi = s(f) = f - \tfrac32 f^3 + f^3 p(f^2)` and
:math:`\pi\cot(\pi f) = 1/f - f\,(4 + c(f^2))`. Poles and zeros are then exact. The rounding
error of :math:`1 + |x|` is corrected, because gammaln is steep at its zeros near the poles.

**trigamma** evaluates these formulas in all lanes. Between 1/2 and 5/2 let :math:`n` be 1 or 2, the nearest integer to :math:`z`, and
:math:`d = z - n`, which is exact; :math:`\psi'(z) = \psi'(2 + d)`, plus :math:`1/z^2` where :math:`n = 1`, with a polynomial in
:math:`d`. From 5/2 on :math:`\psi'(z) = 1/z + 1/(2z^2) + s(1/z^2)/z^3` (NIST Digital Library of Mathematical Functions,
5.5, 5.11, 5.15).

**Error budget**: the budget of :mod:`.gamma_positive`, whose results are pairs. Sine, cotangent and the logarithm are also pairs,
and the last sum adds 1/2 ulp.

**Edges.** gammaln is inf at the poles and at both infinities, as ``math.lgamma``, which Numba and hence PyTensor compile.
``scipy.special.gammaln`` differs: it is -inf at -inf, and inf at subnormal x, where the value is 744. psi is -inf at 0, inf at -0, and nan at the
other poles and at -inf. trigamma is inf at its poles. psi and trigamma agree with ``scipy.special``.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pymc_fastlogp.kernel.vecmath import gamma_positive
from pymc_fastlogp.kernel.vecmath.lane_groups import map_groups
from pymc_fastlogp.kernel.vecmath.logarithm import INF, NAN, SMALLEST_NORMAL_BITS, log_pair
from pymc_fastlogp.kernel.vecmath.polynomials import (
    COTPI,
    SINPI,
    TRIGAMMA,
    TRIGAMMA_STIRLING,
)
from pymc_fastlogp.kernel.vecmath.table_logarithm import HALF_BITS, TableLogarithm
from pymc_fastlogp.kernel.vecmath.vector import (
    Floats,
    Mask,
    Pair,
    call_outlined,
    fast_two_sum,
    two_sum,
)

# Powers of larger arguments may overflow.
LARGE = 2.0**100
LARGE_BITS = 0x4630_0000_0000_0000
# Below this, psi(x) is -1/x to within half an ulp.
PSI_TINY = 2.0**-60
# The correction of 1/x**2 is dropped where 1/x exceeds this, because its parts overflow.
HUGE = 2.0**500
# The value of (1/f - pi cot(pi f)) / f at f = 1/2, where it matters most. The polynomial is 0 there.
COTPI_CONSTANT = 4.0

# Approximately psi'(5/2), so that the polynomial is close to 0 there.
TRIGAMMA_CONSTANT = 0.5
# Approximately the mean of (sin(pi f) / (pi f) - 1) / f**2, so that the polynomial is small.
SINPI_CONSTANT = -1.5


class Argument(NamedTuple):
    """An argument and its reduction.

    Attributes
    ----------
    below, negative : Mask
        Where x < 1/2 and where x < 0.
    z : Pair
        1 + abs(x) with its rounding error where x < 1/2, else x.
    f : Floats
        The distance of x from the nearest integer.
    """

    below: Mask
    negative: Mask
    z: Pair
    f: Floats


class Branches(NamedTuple):
    """The branches of gammaln or psi: from 1/2 to 2**100, for normal numbers below 1/2, and for any number."""

    name: str
    above_half: Callable[[Floats, TableLogarithm], Floats]
    below_half: Callable[[Floats, TableLogarithm], Floats]
    anywhere: Callable[[Floats], Floats]


def gammaln(x: Floats) -> Floats:
    """Return log(abs(gamma(x)))."""
    (result,) = _evaluate(x, GAMMALN)
    return result


def psi(x: Floats) -> Floats:
    """Return the derivative of gammaln."""
    (result,) = _evaluate(x, PSI)
    return result


def gammaln_psi(x: Floats) -> tuple[Floats, Floats]:
    """Return gammaln and psi, which share the logarithm."""
    gammaln, psi = _evaluate(x, GAMMALN, PSI)
    return gammaln, psi


def _evaluate(x: Floats, *functions: Branches) -> Sequence[Floats]:
    """Return the functions; evaluate the branches that some lane of a group needs."""

    def of_group(x: Floats) -> Sequence[Floats]:
        log = TableLogarithm.of(x)

        def rare() -> Sequence[Floats]:
            is_other = x.bits().is_outside(SMALLEST_NORMAL_BITS, LARGE_BITS)
            below_half = [f.below_half(x, log) for f in functions]
            return is_other.where_any(
                below_half, lambda: [call_outlined(f.name, f.anywhere, x) for f in functions]
            )

        usual = [f.above_half(x, log) for f in functions]
        return log.from_half.is_outside(0, LARGE_BITS - HALF_BITS).where_any(usual, rare)

    return map_groups(of_group, x)


def trigamma(x: Floats) -> Floats:
    """Return the second derivative of gammaln."""
    argument = _reduce_argument(x)
    z = argument.z.high
    y = 1.0 / z
    y2 = y * y
    first = z < 1.5
    d = z - first.select(1.0, 2.0)
    series = (y2 * y).fma(y2.polynomial(TRIGAMMA_STIRLING), y2.fma(0.5, y))
    step = _inverse_square(argument.z)
    rest = d.polynomial(TRIGAMMA) + first.select(step.low, 0.0)
    near = first.select(step.high, 0.0) + (rest + TRIGAMMA_CONSTANT)
    value = (z < 2.5).select(near, series)
    pole = _inverse_square(_sine(argument))
    below = pole.high + (pole.low + argument.negative.select(-value, value))
    result = argument.below.select(below, value)
    return _is_pole(argument).select(INF, result)


def _reduce_argument(x: Floats) -> Argument:
    below = x < 0.5
    beyond = two_sum(1.0, x.magnitude())
    z = Pair(below.select(beyond.high, x), below.select(beyond.low, 0.0))
    return Argument(below, x < 0.0, z, x - x.nearest_integer())


def _gammaln_anywhere(x: Floats) -> Floats:
    argument = _reduce_argument(x)
    z, negative = argument.z.high, argument.negative
    value = gamma_positive.gammaln_pair(z, z.at_most(LARGE))
    # psi(z) is about log(z).
    low = log_pair(z).high.fma(argument.z.low, value.low)
    # Where the leading part overflows, inf - inf would make nan of the correction.
    low = value.high.equals(INF).select(0.0, low)
    pole = log_pair(_sine(argument).high.magnitude())
    leading = two_sum(negative.select(-value.high, value.high), -pole.high)
    rest = negative.select(-low, low) - pole.low
    below = leading.high + (leading.low + rest)
    result = argument.below.select(below, value.high + low)
    return _is_pole(argument).select(INF, result)


def _psi_anywhere(x: Floats) -> Floats:
    argument = _reduce_argument(x)
    z, f = argument.z.high, argument.f
    value = gamma_positive.psi_pair(z, z.at_most(LARGE))
    # psi'(z) is about 1/z.
    low = (1.0 / z).fma(argument.z.low, value.low)
    pole = 1.0 / f
    main = two_sum(argument.negative.select(f * COTPI_CONSTANT, 0.0), -pole)
    leading = two_sum(value.high, main.high)
    # The rounding error of 1/f, and the rest of the cotangent.
    rest = f * argument.negative.select((f * f).polynomial(COTPI), 0.0)
    rest = low + (-pole).fma((-f).fma(pole, 1.0), rest)
    below = leading.high + (leading.low + (main.low + rest))
    below = (x.magnitude() < PSI_TINY).select(pole.with_sign_of(-x), below)
    result = argument.below.select(below, value.high + low)
    result = z.equals(INF).select(INF, result)
    return (_is_pole(argument) & (x < -0.5)).select(NAN, result)


GAMMALN = Branches(
    "gammaln", gamma_positive.gammaln, gamma_positive.gammaln_below_half, _gammaln_anywhere
)
PSI = Branches("psi", gamma_positive.psi, gamma_positive.psi_below_half, _psi_anywhere)


def _sine(argument: Argument) -> Pair:
    """Return sin(pi f) / pi where x is negative, else f."""
    f, negative = argument.f, argument.negative
    square = f * f
    cube = f * square
    cube_error = f.fma(square, -cube) + f * f.fma(f, -square)
    high = cube.fma(SINPI_CONSTANT, f)
    rounding = cube.fma(SINPI_CONSTANT, f - high)
    low = cube_error.fma(SINPI_CONSTANT, cube.fma(square.polynomial(SINPI), rounding))
    return fast_two_sum(negative.select(high, f), negative.select(low, 0.0))


def _inverse_square(x: Pair) -> Pair:
    """Return ``1 / x**2``; an overflow gives inf, not nan."""
    inverse = 1.0 / x.high
    # The relative error of the inverse.
    error = (-inverse).fma(x.high, 1.0) - inverse * x.low
    square = inverse * inverse
    rest = square.fma(error * 2.0, inverse.fma(inverse, -square))
    return Pair(square, (inverse.magnitude() < HUGE).select(rest, 0.0))


def _is_pole(argument: Argument) -> Mask:
    """Return where x is zero, a negative integer or -inf."""
    return argument.below & argument.f.is_zero_or_nan()
