r"""The inverse error functions: erfinv, erfcinv.

**Near zero**, for :math:`|x| \le 1/2`, :math:`\mathrm{erfinv}(x) = x + x\,q(x^2)`, a small correction of :math:`x`.

**In the tails** let :math:`u = 1 - |x| < 1/2`, which is exact, and :math:`s = \sqrt{-\log u}`. The result is close to :math:`s`, because
:math:`\mathrm{erfc}(y)` is about :math:`e^{-y^2}`:

.. math:: |\mathrm{erfinv}(x)| = s - 3/8 + p(t), \qquad t = \frac{11 s/8 - 6}{s + 4}

with the minimax polynomial ``ERFCINV``. The variable :math:`t` maps the range of :math:`s`, from 0.83 to 27.3 for the smallest double :math:`u`,
to about :math:`[-1, 1]`, evenly. (For a function of the root of the logarithm: J. M. Blair, C. A. Edwards and J. H. Johnson 1976,
Rational Chebyshev approximations for the inverse of the error function.) The logarithm and its root are pairs. The
offset 3/8 makes :math:`p` smallest where the result is smallest.

**erfcinv** is :math:`\mathrm{erfcinv}(u) = -\mathrm{erfinv}(u - 1)`, where :math:`1 - |u - 1|` is exactly :math:`u` or :math:`2 - u`.

**Error budget** in ulp of the result: the polynomial, its variable and its evaluation 2/3, the logarithm and
its root 1/4, the final rounding 1/2.
"""

from pymc_fastlogp.kernel.vecmath.logarithm import log_pair, with_edges
from pymc_fastlogp.kernel.vecmath.polynomials import ERFCINV, ERFINV
from pymc_fastlogp.kernel.vecmath.vector import Floats, fast_two_sum, two_sum

# Boundary between the two formulas, in terms of u.
MIDDLE = 0.5
# Makes the polynomial smallest where the result is smallest.
OFFSET = 0.375


def erfinv(x: Floats) -> Floats:
    """Return y with erf(y) = x."""
    # Adding 0.0 turns -0.0 into 0.0, as in SciPy.
    return _erfinv(x, 1.0 - x.magnitude()) + 0.0


def erfcinv(x: Floats) -> Floats:
    """Return y with erfc(y) = x."""
    return -_erfinv(x - 1.0, (x > 1.0).select(2.0 - x, x))


def _erfinv(x: Floats, tail: Floats) -> Floats:
    """Return erfinv(x) from x and the exact ``1 - abs(x)``."""
    middle = x.fma((x * x).polynomial(ERFINV), x)
    far = with_edges(tail, -_erfcinv_of_tail(tail))
    return (tail >= MIDDLE).select(middle, (-far).with_sign_of(x))


def _erfcinv_of_tail(tail: Floats) -> Floats:
    log = log_pair(tail)
    log = fast_two_sum(log.high, log.low)
    s = (-log.high).sqrt()
    rest = (s.fma(s, log.high) + log.low) * (-0.5 / s)
    t = s.fma(1.375, -6.0) / (s + 4.0)
    leading = two_sum(-OFFSET, s)
    return leading.high + (leading.low + (t.polynomial(ERFCINV) + rest))
