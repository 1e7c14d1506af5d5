r"""Binet's function and the remainder of a rising factorial, as scalar Ops.

Binet's function :math:`J` and the function :math:`K` are the remainders of Stirling's formula (NIST Digital Library of
Mathematical Functions, 5.9 and 5.11):

.. math::

    \log\Gamma(x) &= (x - \tfrac12) \log x - x + \tfrac12 \log 2\pi + J(x) \\
    \psi(x) &= \log x - K(x), \qquad J'(x) = \frac1{2x} - K(x)

For :math:`x \ge 1`, :math:`J` decreases from 0.081 like :math:`1/(12 x)`, and :math:`K` from 0.577 like :math:`1/(2x)`. For
:math:`x \ge 1/2` both are the rational approximations of :mod:`pymc_fastlogp.kernel.vecmath.gamma_positive`.

:class:`Rising` is the term of :mod:`~pymc_fastlogp.rewrites.loggamma.rising_factorial` that depends on :math:`a` and :math:`k`
together. With :math:`b = a + 1`, :math:`m = k - 1`, :math:`z = m/b`, so :math:`a + k = b + m`:

.. math::

    R(a, k) &= m \log b + (b + m - \tfrac12) \log(1 + z) + J(b + m) \\
    \partial R / \partial a &= \log(1 + z) + \left(\frac1{2b} - K(b + m)\right) \\
    \partial R / \partial k &= \log b + \log(1 + z) + 1 - K(b + m)

Only the last two terms of the second line cancel, for large :math:`b`, where they are added to about :math:`m / b`. The
derivative by :math:`a` contains the derivative of :math:`m \log b`, which the other terms would cancel for :math:`m \gg b`.
Second derivatives need the difference

.. math::

    D(b, x) = \psi'(x) - \frac1x - \frac1{2 b^2}, \qquad J''(x) = D(x, x), \qquad
    \partial^2 R / \partial a^2 = D(b, b + m) - \frac{m}{b (b + m)} .

For large :math:`x`, :math:`\psi'(x) - 1/x` cancels. From 5/2 on, the expansion of :mod:`pymc_fastlogp.kernel.vecmath.gamma`
gives the difference directly.

Each Op is a ``Composite`` with its own gradient, so every backend and every kernel supports it. Common logarithms and quotients
of value and gradient are computed once.
"""

from functools import cache, reduce
from typing import Any, NamedTuple

import pytensor.scalar as ps
from pytensor.gradient import disconnected_type
from pytensor.scalar import ScalarVariable
from pytensor.scalar.math import tri_gamma
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.ops import SpelledOut

# From here on J and K - 1/(2x) are below the rounding of their summands. The 19th power is still finite.
LARGE = 2.0**53
# From here on the expansion of trigamma at infinity is used.
STIRLING = 2.5


class Binet(SpelledOut):
    """J(x), for x >= 1/2."""

    def __init__(self) -> None:
        x = ps.float64("x")
        super().__init__([x], [_binet(x)])
        self._name = "binet"

    def pullback(self, inputs: Any, outputs: Any, output_grads: Any) -> list[ScalarVariable]:
        """Return the gradient."""
        return [output_grads[0] * _scalar(BinetSlope)(*inputs)]


class BinetSlope(SpelledOut):
    """The derivative of J, for x >= 1/2."""

    def __init__(self) -> None:
        x = ps.float64("x")
        super().__init__([x], [_half_inverse_minus_k(x, x)])
        self._name = "binet_slope"

    def pullback(self, inputs: Any, outputs: Any, output_grads: Any) -> list[ScalarVariable]:
        """Return the gradient."""
        [x] = inputs
        return [output_grads[0] * _trigamma_difference(x, x)]


class Rising(SpelledOut):
    """``gammaln(b + m) - gammaln(b) + J(b) + m`` of ``a``, ``k`` and ``log(b)``, for a >= 0 and k >= 1/2.

    The logarithm is an input because many rows share it. The derivative by ``a`` includes its contribution, so this input is
    disconnected.
    """

    def __init__(self) -> None:
        a, k, log_b = (ps.float64(name) for name in ("a", "k", "log_b"))
        factor, m = a + (k - _number(0.5)), k - _number(1)
        super().__init__(
            [a, k, log_b], [m * log_b + factor * ps.log1p(_quotient(a, k)) + _binet(a + k)]
        )
        self._name = "rising"

    def connection_pattern(self, node: Any) -> list[list[bool]]:
        """Return whether each input has a gradient."""
        return [[True], [True], [False]]

    def pullback(self, inputs: Any, outputs: Any, output_grads: Any) -> list[ScalarVariable]:
        """Return the gradients with respect to a and k."""
        (a, k, log_b), [cotangent] = inputs, output_grads
        by_a = _scalar(RisingSlope)(a, k)
        by_k = by_a + log_b + _number(1) - _number(0.5) / (a + _number(1))
        return [cotangent * by_a, cotangent * by_k, disconnected_type()]


class RisingSlope(SpelledOut):
    """``psi(b + m) - psi(b) - (K(b) - 1 / (2 b))``, the derivative of R by a."""

    def __init__(self) -> None:
        a, k = ps.float64("a"), ps.float64("k")
        rest = _half_inverse_minus_k(a + _number(1), a + k)
        super().__init__([a, k], [ps.log1p(_quotient(a, k)) + rest])
        self._name = "rising_slope"

    def pullback(self, inputs: Any, outputs: Any, output_grads: Any) -> list[ScalarVariable]:
        """Return the gradients with respect to a and k."""
        (a, k), [cotangent] = inputs, output_grads
        b, x = a + _number(1), a + k
        by_a = _trigamma_difference(b, x) - _difference_of_inverses(b, k - _number(1), x)
        return [cotangent * by_a, cotangent * tri_gamma(x)]


def _number(value: float) -> ps.ScalarConstant:
    return ps.constant(value, dtype="float64")


def _inverse(x: ScalarVariable) -> ScalarVariable:
    """Return 1 / x. PyTensor's reciprocal of a Python float has single precision in NumPy."""
    return _number(1) / x


def _quotient(a: ScalarVariable, k: ScalarVariable) -> ScalarVariable:
    """Return ``z = m / b``."""
    return (k - _number(1)) * _inverse(a + _number(1))


def _binet(x: ScalarVariable) -> ScalarVariable:
    """Return J(x)."""
    denominators = _denominators(x)
    numerator = _polynomial(x, "BINET_NUMERATOR") * denominators.of_rest
    return numerator * denominators.inverse


def _half_inverse_minus_k(b: ScalarVariable, x: ScalarVariable) -> ScalarVariable:
    """Return ``1 / (2 b) - K(x)``, which is zero for large ``b``."""
    denominators = _denominators(x)
    numerator = _polynomial(x, "LOG_MINUS_PSI_NUMERATOR") * denominators.of_binet
    difference = _number(0.5) * _inverse(b) - numerator * denominators.inverse
    return ps.switch(ps.lt(b, _number(LARGE)), difference, _number(0))


class Denominators(NamedTuple):
    """Denominators of J and K, and the reciprocal of their product: one division for value and gradient."""

    of_binet: ScalarVariable
    of_rest: ScalarVariable
    inverse: ScalarVariable


def _denominators(x: ScalarVariable) -> Denominators:
    of_binet = _polynomial(x, "BINET_DENOMINATOR")
    of_rest = _polynomial(x, "LOG_MINUS_PSI_DENOMINATOR")
    return Denominators(of_binet, of_rest, _inverse(of_binet * of_rest))


def _trigamma_difference(b: ScalarVariable, x: ScalarVariable) -> ScalarVariable:
    """Return D(b, x)."""
    by_b, by_x = _inverse(b), _inverse(x)
    square = by_x * by_x
    series = _polynomial(square, "TRIGAMMA_STIRLING") * square * by_x
    far = _number(0.5) * (by_x - by_b) * (by_x + by_b) + series
    near = tri_gamma(x) - by_x - _number(0.5) * by_b * by_b
    return ps.switch(ps.lt(x, _number(STIRLING)), near, far)


def _difference_of_inverses(
    b: ScalarVariable, m: ScalarVariable, x: ScalarVariable
) -> ScalarVariable:
    """Return 1 / b - 1 / x for x = b + m. PyTensor merges the product into one quotient, which would overflow for large ``m``."""
    by_b, by_x = _inverse(b), _inverse(x)
    return ps.switch(ps.lt(m, b), m * by_b * by_x, by_b - by_x)


def _polynomial(x: ScalarVariable, name: str) -> ScalarVariable:
    """Return a polynomial of the vectorized functions at ``min(x, LARGE)``."""
    # A lazy import: importing the plugin must not load the kernels.
    from pymc_fastlogp.kernel.vecmath import polynomials

    bounded = ps.minimum(x, _number(LARGE))
    last, *others = map(_number, reversed(getattr(polynomials, name)))
    return reduce(lambda p, c: p * bounded + c, others, last)


@cache
def _scalar(op: type[ps.Composite]) -> ps.Composite:
    return op()


@cache
def _elemwise(op: type[ps.Composite]) -> Elemwise:
    return Elemwise(op())


def binet(x: TensorVariable) -> TensorVariable:
    """Return J(x)."""
    return _elemwise(Binet)(x)


def rising(a: TensorVariable, k: TensorVariable, log_b: TensorVariable) -> TensorVariable:
    """Return R(a, k), given ``log(a + 1)``."""
    return _elemwise(Rising)(a, k, log_b)
