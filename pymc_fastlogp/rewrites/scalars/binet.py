r"""Binet's function, and what it and a logarithm leave of a ratio of Gamma functions: scalar Ops that are graphs.

Binet's function :math:`J` and :math:`K` are what the elementary part of Stirling's formula leaves (NIST Digital Library of Mathematical
Functions, 5.9, 5.11):

.. math::

    \log\Gamma(x) &= (x - \tfrac12) \log x - x + \tfrac12 \log 2\pi + J(x) \\
    \psi(x) &= \log x - K(x), \qquad J'(x) = \frac1{2x} - K(x)

Both are smooth and small: from 1 on :math:`J` falls from 0.081 like :math:`1/(12 x)`, :math:`K` from 0.577 like :math:`1/(2x)`. From 1/2
on they are the quotients of polynomials of :mod:`pymc_fastlogp.kernel.vecmath.gamma_positive`.

:class:`RisingRest` is what :mod:`~pymc_fastlogp.rewrites.rows.rising_factorial` needs of :math:`a` and :math:`k` together. With
:math:`b = a + 1`, :math:`m = k - 1`, :math:`z = m/b`, so :math:`a + k = b + m`:

.. math::

    R(a, k) &= (b + m - \tfrac12) \log(1 + z) + J(b + m) \\
    \partial R / \partial a &= \log(1 + z) - z + \left(\frac1{2b} - K(b + m)\right) \\
    \partial R / \partial k &= \log(1 + z) + 1 - K(b + m)

In each of these what cancels is of the size of what is left, or is added to the larger :math:`m \log b` or :math:`m / b` afterwards.

Each Op is a ``Composite`` of PyTensor with a gradient of its own, so that every backend and every kernel has it, and logarithms and
quotients that value and gradient have in common are computed once.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import pytensor.scalar as ps
from pytensor.scalar import ScalarVariable
from pytensor.scalar.math import tri_gamma
from pytensor.tensor.elemwise import Elemwise

from pymc_fastlogp.kernel.vecmath.polynomials import (
    BINET_DENOMINATOR,
    BINET_NUMERATOR,
    LOG_MINUS_PSI_DENOMINATOR,
    LOG_MINUS_PSI_NUMERATOR,
)

# From here on J, and K beside 1/(2x), are below the rounding of what they are added to. The 19th power is still a number.
LARGE = 2.0**53


class Binet(ps.Composite):
    """J(x), for x from 1/2 on."""

    def __init__(self) -> None:
        x = ps.float64("x")
        super().__init__([x], [_binet(x)])
        self._name = "binet"

    def pullback(self, inputs: Any, outputs: Any, output_grads: Any) -> list[ScalarVariable]:
        """Return the gradient."""
        return [output_grads[0] * binet_slope(*inputs)]


class BinetSlope(ps.Composite):
    """The derivative of J, for x from 1/2 on."""

    def __init__(self) -> None:
        x = ps.float64("x")
        super().__init__([x], [_half_minus_rest(x, x)])
        self._name = "binet_slope"

    def pullback(self, inputs: Any, outputs: Any, output_grads: Any) -> list[ScalarVariable]:
        """Return the gradient."""
        [x] = inputs
        return [output_grads[0] * (tri_gamma(x) - _number(1) / x - _number(0.5) / ps.sqr(x))]


class RisingRest(ps.Composite):
    """R(a, k), for a from 0 on and k from 1/2 on."""

    def __init__(self) -> None:
        a, k = ps.float64("a"), ps.float64("k")
        factor = a + (k - _number(0.5))
        super().__init__([a, k], [factor * ps.log1p(_quotient(a, k)) + _binet(a + k)])
        self._name = "rising_rest"

    def pullback(self, inputs: Any, outputs: Any, output_grads: Any) -> list[ScalarVariable]:
        """Return the gradients by a and by k."""
        a, k = inputs
        by_a = rising_rest_slope(a, k)
        by_k = by_a + (k - _number(1.5)) / (a + _number(1)) + _number(1)
        return [output_grads[0] * by_a, output_grads[0] * by_k]


class RisingRestSlope(ps.Composite):
    """The derivative of R by a."""

    def __init__(self) -> None:
        a, k = ps.float64("a"), ps.float64("k")
        z = _quotient(a, k)
        super().__init__([a, k], [ps.log1p(z) - z + _half_minus_rest(a + _number(1), a + k)])
        self._name = "rising_rest_slope"

    def pullback(self, inputs: Any, outputs: Any, output_grads: Any) -> list[ScalarVariable]:
        """Return the gradients by a and by k."""
        (a, k), [given] = inputs, output_grads
        b, x = a + _number(1), a + k
        z, trigamma = _quotient(a, k), tri_gamma(x)
        by_a = ps.sqr(z) / x - _number(0.5) / ps.sqr(b) - _number(1) / x + trigamma
        return [given * by_a, given * (trigamma - _number(1) / b)]


def _number(value: float) -> ps.ScalarConstant:
    return ps.constant(value, dtype="float64")


def _quotient(a: ScalarVariable, k: ScalarVariable) -> ScalarVariable:
    """Return z."""
    return (k - _number(1)) * ps.reciprocal(a + _number(1))


def _binet(x: ScalarVariable) -> ScalarVariable:
    """Return J(x)."""
    first, second, inverse = _denominators(x)
    return _horner(_bounded(x), BINET_NUMERATOR) * second * inverse


def _half_minus_rest(b: ScalarVariable, x: ScalarVariable) -> ScalarVariable:
    """Return ``1 / (2 b) - K(x)``, zero where ``b`` is large."""
    first, second, inverse = _denominators(x)
    rest = _horner(_bounded(x), LOG_MINUS_PSI_NUMERATOR) * first * inverse
    return ps.switch(ps.lt(b, _number(LARGE)), _number(0.5) * ps.reciprocal(b) - rest, _number(0))


def _denominators(x: ScalarVariable) -> tuple[ScalarVariable, ScalarVariable, ScalarVariable]:
    """Return the denominators of J and of K, and the reciprocal of their product: one division for value and gradient."""
    first = _horner(_bounded(x), BINET_DENOMINATOR)
    second = _horner(_bounded(x), LOG_MINUS_PSI_DENOMINATOR)
    return first, second, ps.reciprocal(first * second)


def _bounded(x: ScalarVariable) -> ScalarVariable:
    return ps.minimum(x, _number(LARGE))


def _horner(x: ScalarVariable, coefficients: Sequence[float]) -> ScalarVariable:
    """Return the polynomial with these coefficients, constant term first."""
    last, *others = map(_number, reversed(coefficients))
    return reduce(lambda p, c: p * x + c, others, last)


binet_slope, rising_rest_slope = BinetSlope(), RisingRestSlope()
binet, rising_rest = Elemwise(Binet()), Elemwise(RisingRest())
