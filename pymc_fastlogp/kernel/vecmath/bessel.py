r"""The modified Bessel functions i0e and i1e: :math:`e^{-|x|} I_0(x)` and :math:`e^{-|x|} I_1(x)`.

i0e is even and i1e odd. For :math:`x \ge 0` each function :math:`f` has three ranges, with minimax polynomials :math:`p, q, r`:

.. math::

    f(x) &= 1 - x + x^2\,p(x) \text{ for i0e,} \qquad x/2 + x^2\,p(x) \text{ for i1e} && (x < 1/2) \\
    f(x) &= c + q(x - 4) && (1/2 \le x < 6) \\
    f(x) &= (l + r(12/x - 1))/\sqrt x && (x \ge 6)

The last form follows from the expansion at infinity, :math:`1 + (1 - 4 n^2)/(8x) + \ldots` over :math:`\sqrt{2 \pi x}` (NIST Digital Library
of Mathematical Functions, 10.40), as in the Chebyshev series of Cephes. The exact doubles :math:`c` and :math:`l` are close to
the value of the function in the middle of the range, which makes the polynomials small.

**Error budget** in ulp of the result:

- near 0, the polynomial is at most a fifth of the result: 1/4; the final rounding 1/2;
- in the middle range, the rounding of :math:`x - 4`, up to one ulp of :math:`x` below 2, times the derivative: 1/4; the polynomial 3/4; the final
  rounding 1/2;
- from 6 on, the polynomial 1/4; sum, root and quotient 1/2 each.

**Edges.** i0e is 1 and i1e 0 at 0; both are 0 at infinity.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pymc_fastlogp.kernel.vecmath.polynomials import (
    I0E_FAR,
    I0E_MIDDLE,
    I0E_NEAR,
    I1E_FAR,
    I1E_MIDDLE,
    I1E_NEAR,
)
from pymc_fastlogp.kernel.vecmath.vector import Floats, Pair, fast_two_sum

NEAR, CENTER, FAR = 0.5, 4.0, 6.0


class Ranges(NamedTuple):
    """Coefficients of a function in the middle and the far range.

    Attributes
    ----------
    at_center, limit : float
        The constants that are added to the polynomials, :math:`c` and :math:`l`.
    slope : sequence of float
        Polynomial approximation of the derivative between :data:`NEAR` and 2.
    middle, far : sequence of float
        The polynomials :math:`q` and :math:`r`.
    """

    at_center: float
    slope: Sequence[float]
    middle: Sequence[float]
    limit: float
    far: Sequence[float]


I0E = Ranges(0.25, (-0.48, 0.2), I0E_MIDDLE, 103 / 256, I0E_FAR)
I1E = Ranges(0.1875, (0.36, -0.43, 0.12), I1E_MIDDLE, 99 / 256, I1E_FAR)


def i0e(x: Floats) -> Floats:
    """Return exp(-abs(x)) I0(x)."""
    x = x.magnitude()
    near = _with_square(fast_two_sum(1.0, -x), x, I0E_NEAR)
    return _on_half_line(x, near, I0E)


def i1e(x: Floats) -> Floats:
    """Return exp(-abs(x)) I1(x)."""
    magnitude = x.magnitude()
    near = _with_square(Pair(magnitude * 0.5, x.filled(0.0)), magnitude, I1E_NEAR)
    return _on_half_line(magnitude, near, I1E).with_sign_of(x)


def _with_square(leading: Pair, x: Floats, coefficients: Sequence[float]) -> Floats:
    """Return ``leading + x**2 p(x)``."""
    return leading.high + (x * x).fma(x.polynomial(coefficients), leading.low)


def _on_half_line(x: Floats, near: Floats, ranges: Ranges) -> Floats:
    """Return the function for x >= 0, given its values for the range near 0."""
    from_center = fast_two_sum(-CENTER, x)
    q = from_center.high.polynomial(ranges.middle)
    middle = from_center.low.fma(x.horner(ranges.slope), q) + ranges.at_center
    t = (1.0 / x).fma(2 * FAR, -1.0)
    far = (t.polynomial(ranges.far) + ranges.limit) / x.sqrt()
    return (x < NEAR).select(near, (x < FAR).select(middle, far))
