r"""The gamma family: gammaln, psi (digamma), trigamma.

**Argument.** For :math:`x < 1/2` let :math:`z = 1 + |x|`, else :math:`z = x`. The recurrence leads from
:math:`z` to :math:`0 < x < 1/2`, the reflection formulas to :math:`x < 0`:

.. math::

    \log\Gamma(x) &= \log\Gamma(z) - \log x, &
    \log|\Gamma(x)| &= -\log\Gamma(z) - \log|\sin(\pi x)/\pi| \\
    \psi(x) &= \psi(z) - 1/x, & \psi(x) &= \psi(z) - \pi \cot(\pi x) \\
    \psi'(x) &= \psi'(z) + 1/x^2, & \psi'(x) &= (\pi / \sin(\pi x))^2 - \psi'(z)

Sine and cotangent have period :math:`\pi` up to sign, so :math:`x` is replaced by its exact distance
:math:`f` from the nearest integer: :math:`\sin(\pi f)/\pi = s(f) = f - \tfrac32 f^3 + f^3 p(f^2)` and
:math:`\pi\cot(\pi f) = 1/f - f\,(4 + c(f^2))`. Both poles and zeros keep their place. The rounding
error of :math:`1 + |x|` is carried on, as gammaln has zeros near its poles, where it is steep.

**Between 1/2 and 5/2** let :math:`n` be 1 or 2, the nearest integer to :math:`z`, and :math:`d = z - n`,
which is exact. With one step of the recurrence where :math:`n = 1`,

.. math:: \log\Gamma(z) = \log\Gamma(2 + d) - \log(z), \qquad \psi(z) = \psi(2 + d) - 1/z,

and polynomials in :math:`d`; ``GAMMALN`` approximates the quotient by :math:`d`, so the
zeros at 1 and 2 are met with full relative accuracy.

**From 5/2 on**, Stirling's series

.. math::

    \log\Gamma(z) &= (z - 1/2)(\log z - 1) + (\log 2\pi - 1)/2 + s(1/z^2)/z \\
    \psi(z) &= \log z - 1/(2z) - s'(1/z^2)/z^2

with minimax polynomials in place of the Bernoulli numbers, as the asymptotic series itself would not be
accurate enough below about 10 (NIST Digital Library of Mathematical Functions, 5.5, 5.11, 5.15).
:math:`\log z - 1` is exact in its leading part, and its product with :math:`z - 1/2` is a pair.

All lanes take one logarithm of :math:`z` and one :math:`1/z`; gammaln takes a second logarithm for the
reflection. :func:`gammaln_psi` shares what both need.

**Error budget**: the logarithm as a pair is good to :math:`2^{-57}`, so :math:`2^{-54}` absolute near zeros
of the result; the polynomials and their evaluation 1 ulp of the smaller terms; the last sum 1/2 ulp.

**Edges.** gammaln is inf at the poles and at both infinities, as ``math.lgamma`` is, which Numba and
hence PyTensor compile (``scipy.special.gammaln`` has -inf at -inf, and inf at subnormal x, where the value
is 744). psi is -inf at 0, inf at -0 and nan at the other poles and at -inf; trigamma is inf at its
poles: as ``scipy.special`` has them.
"""

from dataclasses import dataclass

from pymc_fastlogp.kernel.vecmath.logarithm import INF, NAN, log_pair
from pymc_fastlogp.kernel.vecmath.polynomials import (
    COTPI,
    GAMMALN,
    GAMMALN_STIRLING,
    PSI,
    PSI_STIRLING,
    SINPI,
    TRIGAMMA,
    TRIGAMMA_STIRLING,
)
from pymc_fastlogp.kernel.vecmath.vector import Floats, Mask, Pair, fast_two_sum, two_sum

# (log(2 pi) - 1) / 2
STIRLING_CONSTANT = 0.41893853320467274
# Below this, psi(x) is -1/x to within half an ulp.
PSI_TINY = 2.0**-60
# From here on the correction of 1/x**2, computed from parts that overflow, is left out.
HUGE = 2.0**500
# The value of (1/f - pi cot(pi f)) / f at f = 1/2, where it counts most: the polynomial is 0 there.
COTPI_CONSTANT = 4.0

# About psi'(5/2), where the polynomial is next to 0.
TRIGAMMA_CONSTANT = 0.5
# About the mean of (sin(pi f) / (pi f) - 1) / f**2, so that the polynomial is small.
SINPI_CONSTANT = -1.5


@dataclass(frozen=True)
class Argument:
    """An argument and what replaces it.

    Attributes
    ----------
    below : Mask
        Where x < 1/2.
    negative : Mask
        Where x < 0.
    z : Floats
        1 + abs(x) where below, else x.
    error : Floats
        What the rounding of 1 + abs(x) left out, 0 where not below.
    reciprocal : Floats
        1 / z.
    small, first : Mask
        Where z < 5/2 and where z < 3/2.
    d : Floats
        z - 1 where z < 3/2, else z - 2.
    f : Floats
        The distance of x from the nearest integer.
    """

    below: Mask
    negative: Mask
    z: Floats
    error: Floats
    reciprocal: Floats
    small: Mask
    first: Mask
    d: Floats
    f: Floats


def gammaln(x: Floats) -> Floats:
    """Return log(abs(gamma(x)))."""
    argument = _reduce(x)
    return _gammaln(argument, _log_of(argument))


def psi(x: Floats) -> Floats:
    """Return the derivative of gammaln."""
    argument = _reduce(x)
    return _psi(x, argument, _log_of(argument))


def gammaln_psi(x: Floats) -> tuple[Floats, Floats]:
    """Return gammaln and psi, which share logarithm and reciprocal."""
    argument = _reduce(x)
    log = _log_of(argument)
    return _gammaln(argument, log), _psi(x, argument, log)


def trigamma(x: Floats) -> Floats:
    """Return the second derivative of gammaln."""
    argument = _reduce(x)
    y = argument.reciprocal
    y2 = y * y
    series = (y2 * y).fma(y2.polynomial(TRIGAMMA_STIRLING), y2.fma(0.5, y))
    step = _inverse_square(Pair(argument.z, argument.error))
    rest = argument.d.polynomial(TRIGAMMA) + argument.first.select(step.low, 0.0)
    near = argument.first.select(step.high, 0.0) + (rest + TRIGAMMA_CONSTANT)
    value = argument.small.select(near, series)
    pole = _inverse_square(_sine(argument))
    below = pole.high + (pole.low + argument.negative.select(-value, value))
    result = argument.below.select(below, value)
    return _is_pole(argument).select(INF, result)


def _reduce(x: Floats) -> Argument:
    below = x < 0.5
    beyond = two_sum(1.0, x.magnitude())
    z = below.select(beyond.high, x)
    first = z < 1.5
    return Argument(
        below=below,
        negative=x < 0.0,
        z=z,
        error=below.select(beyond.low, 0.0),
        reciprocal=1.0 / z,
        small=z < 2.5,
        first=first,
        d=z - first.select(1.0, 2.0),
        f=x - x.nearest_integer(),
    )


def _log_of(argument: Argument) -> Pair:
    """Return log(z), or 0 where the recurrence needs no logarithm."""
    log = log_pair(argument.z)
    is_inf = argument.z.equals(INF)
    return Pair(is_inf.select(INF, log.high), is_inf.select(0.0, log.low))


def _gammaln(argument: Argument, log: Pair) -> Floats:
    value = _gammaln_of_z(argument, log)
    pole = log_pair(_sine(argument).high.magnitude())
    negative = argument.negative
    leading = two_sum(negative.select(-value.high, value.high), -pole.high)
    rest = negative.select(-value.low, value.low) - pole.low
    below = leading.high + (leading.low + rest)
    result = argument.below.select(below, value.rounded())
    return _is_pole(argument).select(INF, result)


def _gammaln_of_z(argument: Argument, log: Pair) -> Pair:
    """Return log(gamma(z)) for z >= 1/2."""
    small, first, z = argument.small, argument.first, argument.z
    factor = small.select(first.select(-1.0, 0.0), z - 0.5)
    times = small.select(log.high, log.high - 1.0)
    leading = factor * times
    y = argument.reciprocal
    series = (y * y).polynomial(GAMMALN_STIRLING).fma(y, STIRLING_CONSTANT)
    rest = small.select(argument.d * argument.d.polynomial(GAMMALN), series)
    rest = log.high.fma(argument.error, factor.fma(log.low, rest))
    low = factor.fma(times, -leading) + rest
    # Where the leading part overflows, inf - inf would make nan of the correction.
    return Pair(leading, leading.equals(INF).select(0.0, low))


def _psi(x: Floats, argument: Argument, log: Pair) -> Floats:
    small, y, f = argument.small, argument.reciprocal, argument.f
    series = y * (-y).fma((y * y).polynomial(PSI_STIRLING), -0.5)
    high = small.select(argument.first.select(-y, 0.0), log.high)
    low = small.select(argument.d.polynomial(PSI), series + log.low)
    # psi'(z) is about 1/z.
    low = y.fma(argument.error, low)
    pole = 1.0 / f
    main = two_sum(argument.negative.select(f * COTPI_CONSTANT, 0.0), -pole)
    leading = two_sum(high, main.high)
    # What 1/f leaves out, and the rest of the cotangent.
    rest = f * argument.negative.select((f * f).polynomial(COTPI), 0.0)
    rest = low + (-pole).fma((-f).fma(pole, 1.0), rest)
    below = leading.high + (leading.low + (main.low + rest))
    below = (x.magnitude() < PSI_TINY).select(pole.with_sign_of(-x), below)
    result = argument.below.select(below, high + low)
    return (_is_pole(argument) & (x < -0.5)).select(NAN, result)


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
    """Return ``1 / x**2``, also where it overflows."""
    inverse = 1.0 / x.high
    # What the inverse leaves out, relative to it.
    error = (-inverse).fma(x.high, 1.0) - inverse * x.low
    square = inverse * inverse
    rest = square.fma(error * 2.0, inverse.fma(inverse, -square))
    return Pair(square, (inverse.magnitude() < HUGE).select(rest, 0.0))


def _is_pole(argument: Argument) -> Mask:
    """Return where x is zero or a negative integer; -inf is one of them."""
    return argument.below & argument.f.is_zero_or_nan()
