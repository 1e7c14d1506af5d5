r"""gammaln and psi (digamma) of positive arguments, which log densities have.

**From 5/2 on**, Stirling's series

.. math::

    \log\Gamma(x) &= (x - 1/2)(\log x - 1) + (\log 2\pi - 1)/2 + s(1/x^2)/x \\
    \psi(x) &= \log x - 1/(2x) - s'(1/x^2)/x^2

with minimax polynomials in place of the Bernoulli numbers, as the asymptotic series itself would not be
accurate enough below about 10 (NIST Digital Library of Mathematical Functions, 5.11). The logarithm is the exact
:math:`k \log 2` (its leading part) and a rest, so :math:`k \log 2 - 1` is exact, and its product with
:math:`x - 1/2` is a pair.

**Below**, the recurrence leads to :math:`2 + d` with :math:`-1/2 \le d \le 1/2`, where :math:`d` is
:math:`x`, :math:`x - 1` or :math:`x - 2` and exact. With :math:`q = x(x + 1)`, :math:`x` or 1,

.. math:: \log\Gamma(x) = \log\Gamma(2 + d) - \log q, \qquad \psi(x) = \psi(2 + d) - q'/q,

and polynomials in :math:`d`; ``GAMMALN`` approximates the quotient by :math:`d`, so the
zeros at 1 and 2 are met with full relative accuracy. The logarithm is the one that Stirling's series takes, of
another argument: each lane has one.

What only arguments below 5/2 need is skipped where no lane has one
(:meth:`~pymc_fastlogp.kernel.vecmath.vector.Mask.where_any`).

**Error budget**: the logarithm is good to :math:`2^{-54}`; the polynomials and their evaluation 1 ulp of the smaller
terms; :math:`q'/q` has three roundings; the last sum 1/2 ulp.
"""

from dataclasses import dataclass

from pymc_fastlogp.kernel.vecmath.logarithm import log_of_normal_apart
from pymc_fastlogp.kernel.vecmath.polynomials import GAMMALN, GAMMALN_STIRLING, PSI, PSI_STIRLING
from pymc_fastlogp.kernel.vecmath.vector import Floats, Pair

# (log(2 pi) - 1) / 2
STIRLING_CONSTANT = 0.41893853320467274
# From here on Stirling's series.
FAR = 2.5


@dataclass(frozen=True)
class Near:
    """What the recurrence makes of a positive argument below 5/2.

    Attributes
    ----------
    d : Floats
        The new argument minus 2.
    product : Floats
        q, the quotient of both gamma functions: x (x + 1), x or 1.
    derivative : Floats
        Its derivative: 2 x + 1, 1 or 0.
    """

    d: Floats
    product: Floats
    derivative: Floats

    @classmethod
    def of(cls, x: Floats) -> "Near":
        """Apply the recurrence."""
        below, first = x < 0.5, x < 1.5
        return cls(
            d=x - below.select(0.0, first.select(1.0, 2.0)),
            product=below.select(x.fma(x, x), first.select(x, 1.0)),
            derivative=below.select(x.fma(2.0, 1.0), first.select(1.0, 0.0)),
        )

    def gammaln(self) -> Floats:
        """Return ``log(gamma(2 + d))``."""
        return self.d * self.d.polynomial(GAMMALN)

    def psi(self) -> Floats:
        """Return psi of the argument."""
        return self.d.polynomial(PSI) - self.derivative / self.product


def gammaln(x: Floats) -> Pair:
    """Return log(gamma(x)) for x from 2**-1022 to 2**1000."""

    def near() -> list[Floats]:
        argument = Near.of(x)
        return [argument.product, argument.gammaln()]

    argument, rest = (x < FAR).where_any([x, x.filled(0.0)], near)
    return _gammaln(x, log_of_normal_apart(argument), 1.0 / x, rest)


def psi(x: Floats) -> Pair:
    """Return the derivative of gammaln, for x from 2**-1022 to 2**1000."""
    far = _psi(log_of_normal_apart(x), 1.0 / x)
    high, low = (x < FAR).where_any([far.high, far.low], lambda: [x.filled(0.0), Near.of(x).psi()])
    return Pair(high, low)


def gammaln_psi(x: Floats) -> tuple[Pair, Pair]:
    """Return gammaln and psi, which share logarithm, reciprocal and recurrence."""
    is_near, y = x < FAR, 1.0 / x

    def near() -> list[Floats]:
        argument = Near.of(x)
        return [argument.product, argument.gammaln(), argument.psi()]

    zero = x.filled(0.0)
    argument, gammaln_near, psi_near = is_near.where_any([x, zero, zero], near)
    log = log_of_normal_apart(argument)
    psi_far = _psi(log, y)
    psi = Pair(is_near.select(0.0, psi_far.high), is_near.select(psi_near, psi_far.low))
    return _gammaln(x, log, y, gammaln_near), psi


def _gammaln_series(y: Floats) -> Floats:
    """Return Stirling's series of 1 / y, and its constant."""
    return (y * y).polynomial(GAMMALN_STIRLING).fma(y, STIRLING_CONSTANT)


def _gammaln(x: Floats, log: Pair, y: Floats, near: Floats) -> Pair:
    """Return ``(x - 1/2) (log - 1) + series``, and ``near - log`` below 5/2."""
    is_near = x < FAR
    rest = is_near.select(near, _gammaln_series(y))
    factor = is_near.select(-1.0, x - 0.5)
    times = is_near.select(log.high, log.high - 1.0)
    leading = factor * times
    return Pair(leading, factor.fma(times, -leading) + factor.fma(log.low, rest))


def _psi(log: Pair, y: Floats) -> Pair:
    """Return Stirling's series from the logarithm of the argument and its reciprocal."""
    series = y * (-y).fma((y * y).polynomial(PSI_STIRLING), -0.5)
    return Pair(log.high, log.low + series)
