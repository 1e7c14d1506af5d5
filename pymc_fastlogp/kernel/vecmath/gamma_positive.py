r"""gammaln and psi (digamma) of positive arguments, the common case in log densities.

**From 1/2 on**, with Binet's function :math:`J` and :math:`K(x) = 1/(2x) - J'(x)` (NIST Digital Library of Mathematical
Functions, 5.9, 5.11):

.. math::

    \log\Gamma(x) &= (x - 1/2)(\log x - 1) + (\log 2\pi - 1)/2 + J(x) \\
    \psi(x) &= \log x - K(x)

For large x, :math:`J` is about :math:`1/(12 x)` and :math:`K` about :math:`1/(2x)`. Both are smooth on the half-line, and
grow like :math:`-\tfrac12 \log x` and :math:`1/x` at 0. Stirling's series is inaccurate below about 10. The minimax quotients of polynomials
``BINET`` and ``LOG_MINUS_PSI`` hold from 1/2 to infinity. A quotient needs a quarter fewer coefficients than a polynomial in
:math:`1/(x + 1/2)`, which would also cost a division. All coefficients but one tiny one are positive, so no digits cancel.

**Below 1/2**, a rare case, the recurrence leads to polynomials in x:

.. math:: \log\Gamma(x) = \log\Gamma(1 + x) - \log x, \qquad \psi(x) = \psi(1 + x) - 1/x.

The logarithm comes from :mod:`.table_logarithm`, whose leading part includes the :math:`-1`. Two multiply-adds add the other terms,
so only the last sum of the large terms is rounded.

**Error budget** of gammaln in ulp of the larger of :math:`|\log\Gamma(x)|` and 1/2: the logarithm times :math:`x - 1/2` 1, the sum
with J 1/2, the last sum 1/2; below 1/2 one more sum. Error budget of psi: K and the roundings in its quotient 1.5, the logarithm 1/2, the sums
1/2 each.
"""

from pymc_fastlogp.kernel.vecmath.compensated import product
from pymc_fastlogp.kernel.vecmath.logarithm import split_log_of_normal
from pymc_fastlogp.kernel.vecmath.polynomials import (
    BINET_DENOMINATOR,
    BINET_NUMERATOR,
    GAMMALN_BELOW_HALF,
    LOG_MINUS_PSI_DENOMINATOR,
    LOG_MINUS_PSI_NUMERATOR,
    PSI_BELOW_HALF,
)
from pymc_fastlogp.kernel.vecmath.table_logarithm import TableLogarithm
from pymc_fastlogp.kernel.vecmath.vector import Floats, Pair, two_sum

# (log(2 pi) - 1) / 2
STIRLING_CONSTANT = 0.41893853320467274


def gammaln(x: Floats, log: TableLogarithm) -> Floats:
    """Return log(gamma(x)) for x from 1/2 to 2**100."""
    factor = x - 0.5
    return factor.fma(log.high(-1.0), factor.fma(log.low, _stirling(x)))


def gammaln_pair(x: Floats, bounded: Floats) -> Pair:
    """Return log(gamma(x)) as a pair for any x from 1/2 on, given ``bounded``, the smaller of x and 2**100."""
    log, factor = split_log_of_normal(x), x - 0.5
    leading, following = product(factor, log.high - 1.0), product(factor, log.low)
    small = two_sum(following.high, _stirling(bounded))
    total = two_sum(leading.high, small.high)
    return Pair(total.high, total.low + (small.low + following.low + leading.low))


def gammaln_below_half(x: Floats, log: TableLogarithm) -> Floats:
    """Return log(gamma(x)) for normal positive x up to 1/2."""
    return x.fma(x.polynomial(GAMMALN_BELOW_HALF), -log.low) - log.high()


def psi(x: Floats, log: TableLogarithm) -> Floats:
    """Return the derivative of gammaln for x from 1/2 to 2**100."""
    return log.high() + (log.low - _log_minus_psi(x))


def psi_pair(x: Floats, bounded: Floats) -> Pair:
    """Return psi(x) as a pair for any x from 1/2 on, given ``bounded``, the smaller of x and 2**100."""
    log = split_log_of_normal(x)
    return Pair(log.high, log.low - _log_minus_psi(bounded))


def psi_below_half(x: Floats, log: TableLogarithm) -> Floats:
    """Return psi(x) for normal positive x up to 1/2; the logarithm is not used."""
    return x.polynomial(PSI_BELOW_HALF) - 1.0 / x


def _stirling(x: Floats) -> Floats:
    """Return ``(log(2 pi) - 1) / 2 + J(x)``."""
    return x.horner(BINET_NUMERATOR) / x.horner(BINET_DENOMINATOR) + STIRLING_CONSTANT


def _log_minus_psi(x: Floats) -> Floats:
    """Return K(x)."""
    return x.horner(LOG_MINUS_PSI_NUMERATOR) / x.horner(LOG_MINUS_PSI_DENOMINATOR)
