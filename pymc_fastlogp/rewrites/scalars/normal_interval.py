r"""Take the logarithm of a difference of error functions without cancellation.

.. code::

    log(k * erf(v) - k * erf(u))    ->  log(k) + log(q) - o
    log(k * erfc(u) - k * erfc(v))  ->  the same

The probability of an interval of a normal distribution, written by hand as :math:`\log(\Phi(b) - \Phi(a))`, has these forms.

By symmetry only the end :math:`n` next to zero and the other end :math:`f` matter: :math:`(n, f) = (u, v)` if
:math:`u + v \ge 0`, else :math:`(-v, -u)`. Let :math:`d = v - u`, :math:`h = d^2 / 4` and :math:`t = f^2 - n^2 = |u + v| d`. Then

.. math::

    \mathrm{erf}(v) - \mathrm{erf}(u)
    &= e^{-n^2} (\mathrm{erfcx}(n) - e^{-t} \mathrm{erfcx}(f)) && n > 0 \\
    &= 2 - e^{-n^2} (\mathrm{erfcx}(-n) + e^{-t} \mathrm{erfcx}(f)) && n \le 0 \\
    &= \frac{2 d}{\sqrt\pi} e^{-n^2 + h - t/2} \int_0^1 \cosh(x t / 2) \, e^{-h x^2} dx.

The integral is a power series in :math:`(t/2)^2` and :math:`h`. The series is evaluated if :math:`t \le 1/4` and
:math:`h \le 1/16`, where the other two forms cancel. Its remainder is below 1e-16.
Factors and terms that :math:`u` and :math:`v` share cancel in :math:`d`. The left side loses all digits eight standard deviations
above the mean, or between close ends. The right side keeps them, and so does its gradient.

Differences to the left side: where the left side is rounded to zero, its logarithm is :math:`-\infty`; the right side is finite.

When it applies
---------------
Before the gradient, in double precision, with ``k`` a positive constant, or one.

When it refuses
---------------
Other combinations of error functions, and single precision.
"""

from math import factorial, log, pi, sqrt

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scalar.math import Erf, Erfc
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.algebra import (
    Factor,
    count_leaves,
    flatten_product,
    multiply_all,
)
from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import operand, operands
from pymc_fastlogp.rewrites.replacement import replacement
from pymc_fastlogp.rewrites.scalars.ordered_logit import MOST_TERMS, difference

# The series is evaluated up to these, and truncated where its terms are below the rounding of the first.
MOST_T, MOST_H = 1 / 4, 1 / 16
ORDERS_OF_T, ORDERS_OF_H = 5, 8
# Ends are clipped here, so that infinite ends give no NaN: the squares are finite.
FAR = 1e100


@node_rewriter([pt.log])
def local_log_of_normal_interval(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``log(k * erf(v) - k * erf(u))``, and the same of ``erfc``, without a difference of close numbers."""
    [x], [out] = node.inputs, node.outputs
    if x.type.dtype != "float64" or out.type.dtype != "float64":
        return None
    sides = [_scaled(side) for side in operands(x, ps.Sub)]
    if len(sides) != 2 or sides[0][0] != sides[1][0] or not 0 < sides[0][0] < np.inf:
        return None
    for function in (Erf, Erfc):
        v, u = (operand(side, function) for _, side in sides)
        if u is not None and v is not None:
            ends = (u, v) if function is Erf else (v, u)
            return replacement(out, log(sides[0][0]) + _log_of_interval(*ends))
    return None


def _scaled(x: TensorVariable) -> tuple[float, TensorVariable]:
    """Return a constant factor and the other factor of a product."""
    match operands(x, ps.Mul):
        case [k, other] if (number := fill_value(k)) is not None:
            return float(number), other
    return 1.0, x


def _log_of_interval(u: TensorVariable, v: TensorVariable) -> TensorVariable:
    """Return ``log(erf(v) - erf(u))``."""
    d = pt.clip(_distance(v, u), -2 * FAR, 2 * FAR)
    u, v = (pt.clip(end, -FAR, FAR) for end in (u, v))
    total = u + v
    is_above = pt.ge(total, 0)
    near, far = pt.switch(is_above, u, -v), pt.switch(is_above, v, -u)
    t, h = pt.abs(total) * d, pt.sqr(d / 2)
    is_close = pt.le(t, MOST_T) & pt.le(h, MOST_H)
    is_apart = pt.le(near, 0) & pt.invert(is_close)
    ratio = 1 + pt.expm1(-t)
    at_near, at_far = pt.erfcx(pt.abs(near)), ratio * pt.erfcx(far)
    scale = pt.exp(pt.switch(is_close, h - t / 2, -pt.sqr(near)))
    series = 2 / sqrt(pi) * d * _series(pt.sqr(pt.minimum(t, MOST_T) / 2), pt.minimum(h, MOST_H))
    rest = pt.switch(is_apart, 2 - scale * (at_near + at_far), at_near - at_far)
    return pt.log(pt.switch(is_close, scale * series, rest)) - pt.switch(
        is_apart, 0.0, pt.sqr(near)
    )


def _series(w: TensorVariable, h: TensorVariable) -> TensorVariable:
    r"""Return :math:`\int_0^1 \cosh(x \sqrt w) e^{-h x^2} dx = \sum_{ij} w^i (-h)^j / ((2i)! \, j! \, (2i + 2j + 1))`."""
    rows = [
        [1 / (factorial(2 * i) * factorial(j) * (2 * i + 2 * j + 1)) for i in range(ORDERS_OF_T)]
        for j in range(ORDERS_OF_H)
    ]
    return _polynomial([_polynomial(row, w) for row in rows], -h)


def _polynomial(coefficients: list, x: TensorVariable) -> TensorVariable:
    """Return a polynomial by Horner's scheme, constant coefficient first."""
    *others, value = coefficients
    for coefficient in reversed(others):
        value = value * x + coefficient
    return value


def _distance(v: TensorVariable, u: TensorVariable) -> TensorVariable:
    """Return ``v - u`` without the factors and terms that both share."""
    if any(count_leaves(x, ps.Mul, ps.TrueDiv) > MOST_TERMS for x in (v, u)):
        return difference(v, u)
    of_v, of_u, shared = [*flatten_product(v)], [*flatten_product(u)], []
    for factor in [*of_u]:
        same = next((other for other in of_v if _is_same(factor, other)), None)
        if same is not None:
            of_u.remove(factor)
            of_v.remove(same)
            shared.append(factor)
    inner = difference(_product(of_v, v), _product(of_u, u))
    return inner * _product(shared, v)


def _is_same(factor: Factor, other: Factor) -> bool:
    return factor.is_inverse == other.is_inverse and equal_computations([factor.x], [other.x])


def _product(factors: list[Factor], like: TensorVariable) -> TensorVariable:
    """Return the product of factors, ones if there are none."""
    one = pt.constant(np.ones((1,) * like.type.ndim, dtype=like.type.dtype))
    return multiply_all([1 / x if is_inverse else x for x, is_inverse in factors] or [one])
