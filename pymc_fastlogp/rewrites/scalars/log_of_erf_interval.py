r"""The logarithm of a difference of error functions, as a scalar Op.

:class:`LogOfInterval` is :math:`\log P` with :math:`P = (\mathrm{erf}(v) - \mathrm{erf}(u)) / 2`, the probability of a normal distribution
between :math:`\sqrt 2\, u` and :math:`\sqrt 2\, v`. Its arguments are both ends and :math:`d = v - u`, which a rule may know with more digits
than the difference of the rounded ends has.

By symmetry only the end :math:`n` next to zero and the other end :math:`f` matter: :math:`(n, f) = (u, v)` if :math:`u + v \ge 0`, else
:math:`(-v, -u)`. Let :math:`t = f^2 - n^2 = |u + v| d`. Then

.. math::

    P &= \tfrac12 e^{-n^2} (\mathrm{erfcx}(n) - e^{-t} \mathrm{erfcx}(f)) && n > 0 \\
    P &= 1 - x, \quad x = \tfrac12 e^{-n^2} (\mathrm{erfcx}(-n) + e^{-t} \mathrm{erfcx}(f)) && n \le 0 \\
    P &= \frac{e^{-m^2}}{\sqrt\pi} \int_{-h}^{h} e^{-2 m y - y^2} \, dy
    = \frac{e^{-m^2}}{\sqrt\pi} \, d \sum_{k \text{ even}} \frac{g_k}{k + 1} && m = \tfrac12 (n + f), \quad h = \tfrac12 d.

The integrand generates Hermite polynomials :math:`H_k`. With :math:`p = 2 m h = t / 2` and :math:`q = 2 h^2 = d^2 / 2`, the terms
:math:`g_k = H_k(m) h^k / k!` follow from

.. math:: g_0 = 1, \qquad g_1 = p, \qquad g_{k+1} = (p\, g_k - q\, g_{k-1}) / (k + 1).

The series is evaluated for *close ends*, :math:`t \le 1/2` and :math:`d \le 1/4`, where the first two forms cancel. Its remainder is below
1e-17. Elsewhere the first two forms lose a factor of at most seven. If :math:`x` is small, the rounding of :math:`1 - x`, which
:math:`(1 - P) - x` gives exactly, is added to the logarithm, so :math:`\log P` keeps its digits next to zero, too.

**Gradient.** With :math:`r_u = e^{-u^2} / (\sqrt\pi P)` and :math:`r_v = e^{-v^2} / (\sqrt\pi P)`, the derivatives are :math:`-r_u` by :math:`u`,
:math:`r_v` by :math:`v`, and zero by :math:`d`. If a location moves both ends, both derivatives are added, and cancel for close ends. There the
derivatives are taken by the center with :math:`d` fixed, one half of it by each end, and by :math:`d` with the center fixed:

.. math:: G = r_v - r_u, \qquad H = \tfrac12 (r_u + r_v).

On :math:`d = v - u` the sums of both ways are equal: :math:`G / 2 - H = -r_u` and :math:`G / 2 + H = r_v`. With the ratio :math:`r` of
the nearer end, the ratio of the other end is :math:`e^{-t} r`, so :math:`|G| = -r\,\mathrm{expm1}(-t)` does not cancel.
"""

from functools import cache
from math import pi, sqrt
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.gradient import disconnected_type
from pytensor.scalar import ScalarVariable
from pytensor.scalar.math import erfcx
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.ops import SpelledOut

# The series is evaluated up to these, and truncated where its terms are below the rounding of the first.
MOST_T, MOST_D = 1 / 2, 1 / 4
LAST_TERM = 12
# Ends are clipped here, so that infinite ends give no NaN: the squares are finite.
FAR = {"float32": 1e18, "float64": 1e150}


class LogOfInterval(SpelledOut):
    """``log((erf(v) - erf(u)) / 2)`` of ``u``, ``v`` and ``d = v - u``, whose gradient is divided between the three."""

    def __init__(self, dtype: str) -> None:
        ends = _inputs(dtype)
        super().__init__(ends, [_log_of_interval(*ends)])
        self._name = "log_of_interval"

    def pullback(self, inputs: Any, outputs: Any, output_grads: Any) -> list[ScalarVariable]:
        """Return the gradients with respect to both ends and their difference."""
        dtype = inputs[0].type.dtype
        return [output_grads[0] * _slope(dtype, which)(*inputs) for which in range(3)]


class SlopeOfInterval(SpelledOut):
    """The derivative of :class:`LogOfInterval` by ``u``, ``v`` or ``d``."""

    def __init__(self, dtype: str, which: int) -> None:
        ends = _inputs(dtype)
        super().__init__(ends, [_slopes(*ends)[which]])
        self._name, self.which = f"slope_of_interval_{which}", which

    def connection_pattern(self, node: Any) -> list[list[bool]]:
        """Return whether each input has a gradient."""
        return [[True], [True], [False]]

    def pullback(self, inputs: Any, outputs: Any, output_grads: Any) -> list[ScalarVariable]:
        r"""Return the gradients with respect to both ends, which include that of their difference.

        Let :math:`a = -r_u` and :math:`b = r_v`. Their derivatives by :math:`u` are :math:`-a (2 u + a)` and :math:`-a b`, by :math:`v` they are
        :math:`-a b` and :math:`-b (2 v + b)`. The slopes of close ends are :math:`(a + b) / 2` twice and :math:`(b - a) / 2`.
        """
        (u, v, d), [cotangent] = inputs, output_grads
        by_u, by_v, by_d = (_slope(u.type.dtype, which)(u, v, d) for which in range(3))
        a, b = by_u - by_d, by_v + by_d
        of_a = (-a * (u + u + a), -a * b)
        of_b = (-a * b, -b * (v + v + b))
        half, zero = _number(0.5, u), _number(0, u)
        sign = half if self.which < 2 else -half
        close = [half * y + sign * x for x, y in zip(of_a, of_b, strict=True)]
        apart = (of_a, of_b, (zero, zero))[self.which]
        is_close = _close_ends(u, v, d)
        slopes = [ps.switch(is_close, *pair) for pair in zip(close, apart, strict=True)]
        return [*(cotangent * slope for slope in slopes), disconnected_type()]


class _Forms(NamedTuple):
    """Values that log probability and slopes share.

    Attributes
    ----------
    probability : ScalarVariable
        The probability, divided by ``exp(-shift)``.
    complement : ScalarVariable
        One minus the probability, if it is less than one half and ``is_inside``.
    exponential : ScalarVariable
        ``exp(shift - n**2)``, for close ends divided by ``exp(h**2)`` of both ends.
    decay : ScalarVariable
        ``exp(-t)``.
    """

    is_above: ScalarVariable
    is_close: ScalarVariable
    is_inside: ScalarVariable
    t: ScalarVariable
    shift: ScalarVariable
    probability: ScalarVariable
    complement: ScalarVariable
    exponential: ScalarVariable
    decay: ScalarVariable


def _forms(u: ScalarVariable, v: ScalarVariable, d: ScalarVariable) -> _Forms:
    far = _number(FAR[u.type.dtype], u)
    zero, half, one = (_number(x, u) for x in (0, 0.5, 1))
    d = ps.minimum(d, far + far)
    u, v = (ps.clip(end, -far, far) for end in (u, v))
    total = u + v
    is_above = ps.ge(total, zero)
    n, f = ps.switch(is_above, u, -v), ps.switch(is_above, v, -u)
    t = ps.abs(total) * d
    p, q = half * t, half * d * d
    is_close = _are_close(t, d)
    is_inside = ps.le(n, zero)
    square = n * n
    exponential = ps.exp(ps.switch(is_close, p - half * q, ps.switch(is_inside, -square, zero)))
    decay = ps.exp(-t)
    at_n, at_f = erfcx(ps.abs(n)), decay * erfcx(f)
    complement = half * exponential * (at_n + at_f)
    apart = ps.switch(is_inside, one - complement, half * (at_n - at_f))
    close = _number(1 / sqrt(pi), u) * d * _series(p, q)
    m = half * total
    return _Forms(
        is_above,
        is_close,
        is_inside,
        t,
        ps.switch(is_close, m * m, ps.switch(is_inside, zero, square)),
        ps.switch(is_close, close, apart),
        complement,
        exponential,
        decay,
    )


def _log_of_interval(u: ScalarVariable, v: ScalarVariable, d: ScalarVariable) -> ScalarVariable:
    x, zero, one = _forms(u, v, d), _number(0, u), _number(1, u)
    is_complement = ps.and_(x.is_inside, ps.invert(x.is_close))
    rounding = ((one - x.probability) - x.complement) / x.probability
    return ps.log(x.probability) - x.shift + ps.switch(is_complement, rounding, zero)


def _slopes(
    u: ScalarVariable, v: ScalarVariable, d: ScalarVariable
) -> tuple[ScalarVariable, ScalarVariable, ScalarVariable]:
    """Return the derivatives by both ends and by their difference."""
    x, zero, half = _forms(u, v, d), _number(0, u), _number(0.5, u)
    at_n = _number(1 / sqrt(pi), u) * x.exponential / x.probability
    at_f = at_n * x.decay
    change = at_n * ps.expm1(-x.t)
    by_center = half * ps.switch(x.is_above, change, -change)
    by_u = -ps.switch(x.is_above, at_n, at_f)
    by_v = ps.switch(x.is_above, at_f, at_n)
    return (
        ps.switch(x.is_close, by_center, by_u),
        ps.switch(x.is_close, by_center, by_v),
        ps.switch(x.is_close, at_n + half * change, zero),
    )


def _close_ends(u: ScalarVariable, v: ScalarVariable, d: ScalarVariable) -> ScalarVariable:
    return _are_close(ps.abs(u + v) * d, d)


def _are_close(t: ScalarVariable, d: ScalarVariable) -> ScalarVariable:
    """Return whether ends are close. Ends in the wrong order are not, so that the logarithm is NaN."""
    is_near = ps.and_(ps.le(t, _number(MOST_T, t)), ps.le(d, _number(MOST_D, d)))
    return ps.and_(is_near, ps.ge(d, _number(0, d)))


def _series(p: ScalarVariable, q: ScalarVariable) -> ScalarVariable:
    """Return the sum of ``g[k] / (k + 1)`` for even ``k``."""
    before, g = _number(1, p), p
    total = before
    for k in range(2, LAST_TERM + 1):
        before, g = g, (p * g - q * before) * _number(1 / k, p)
        if k % 2 == 0:
            total = total + g * _number(1 / (k + 1), p)
    return total


def _inputs(dtype: str) -> list[ScalarVariable]:
    return [ps.get_scalar_type(dtype)(name) for name in ("u", "v", "d")]


def _number(value: float, like: ScalarVariable) -> ps.ScalarConstant:
    return ps.constant(np.array(value, dtype=like.type.dtype)[()], dtype=like.type.dtype)


@cache
def _slope(dtype: str, which: int) -> SlopeOfInterval:
    return SlopeOfInterval(dtype, which)


@cache
def _elemwise(dtype: str) -> Elemwise:
    return Elemwise(LogOfInterval(dtype))


def log_of_erf_interval(u: TensorVariable, v: TensorVariable, d: TensorVariable) -> TensorVariable:
    """Return ``log((erf(v) - erf(u)) / 2)``, given ``d = v - u``. All arguments have one float dtype."""
    return _elemwise(u.type.dtype)(u, v, d)
