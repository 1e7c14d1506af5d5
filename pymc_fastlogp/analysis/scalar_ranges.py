"""What elementwise functions make of intervals: a row for each scalar Op.

A row says what numbers become, and whether they make nan. The functions in :data:`STRICT` return nan
for each operand that is nan. Those in :data:`OTHERS` may return a number then, which their rows hold as well.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import pytensor.scalar as ps

from pymc_fastlogp.analysis.intervals import (
    Interval,
    Operands,
    add,
    divide,
    hull,
    multiply,
    negate,
    widened,
)

Rule = Callable[[Operands], Interval]


def _monotone(
    f: ps.UnaryScalarOp,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    domain: float = -math.inf,
) -> Rule:
    """Return the rule of a monotone function of numbers from ``domain`` on, within its limits."""

    def rule(xs: Operands) -> Interval:
        [x] = xs
        ends = sorted(float(f.impl(max(end, domain))) for end in (x.low, x.high))
        y = widened(*ends)
        return Interval(max(y.low, low), min(y.high, high), nan=x.low < domain)

    return rule


def _periodic(xs: Operands) -> Interval:
    return Interval(-1.0, 1.0, nan=not xs[0].is_bounded)


def _abs(xs: Operands) -> Interval:
    return Interval(xs[0].smallest, xs[0].largest)


def _sqr(xs: Operands) -> Interval:
    size = _abs(xs)
    return replace(multiply([size, size]), nan=False)  # a number is not both zero and infinite


def _pow(xs: Operands) -> Interval:
    base, exponent = xs
    if exponent == Interval(2.0, 2.0):
        return _sqr([base])
    if exponent == Interval(0.5, 0.5):
        return _sqrt([base])
    if base.low >= 1 and exponent.low >= 0:
        return Interval(1.0)
    if base.low > 0 or (base.low == 0 and exponent.low >= 0):
        return Interval(0.0)
    return Interval(nan=True)


def _maximum(xs: Operands) -> Interval:
    x, y = xs
    both = Interval(max(x.low, y.low), max(x.high, y.high))
    return hull([both, *(other for other, nan in ((x, y.nan), (y, x.nan)) if nan)])


def _minimum(xs: Operands) -> Interval:
    return negate(_maximum([negate(x) for x in xs]))


def _clip(xs: Operands) -> Interval:
    x, low, high = xs
    if low.nan or high.nan or low.high > high.low:
        return hull(xs)
    return Interval(
        min(max(x.low, low.low), high.high), max(min(x.high, high.high), low.low), x.nan
    )


_sqrt = _monotone(ps.sqrt, 0.0, domain=0.0)

STRICT: dict[type[ps.ScalarOp], Rule] = {
    ps.Add: add,
    ps.Sub: lambda xs: add([xs[0], negate(xs[1])]),
    ps.Mul: multiply,
    ps.TrueDiv: lambda xs: divide(*xs),
    ps.Reciprocal: lambda xs: divide(Interval(1.0, 1.0), xs[0]),
    ps.Neg: lambda xs: negate(xs[0]),
    ps.Abs: _abs,
    ps.Sqr: _sqr,
    ps.Sqrt: _sqrt,
    ps.Identity: lambda xs: xs[0],
    ps.Exp: _monotone(ps.exp, 0.0),
    ps.Exp2: _monotone(ps.exp2, 0.0),
    ps.Expm1: _monotone(ps.expm1, -1.0),
    ps.Log: _monotone(ps.log, domain=0.0),
    ps.Log2: _monotone(ps.log2, domain=0.0),
    ps.Log10: _monotone(ps.log10, domain=0.0),
    ps.Log1p: _monotone(ps.log1p, domain=-1.0),
    ps.Sigmoid: _monotone(ps.sigmoid, 0.0, 1.0),
    ps.Softplus: _monotone(ps.softplus, 0.0),
    ps.Tanh: _monotone(ps.tanh, -1.0, 1.0),
    ps.ArcTan: _monotone(ps.arctan),
    ps.Erf: _monotone(ps.erf, -1.0, 1.0),
    ps.Erfc: _monotone(ps.erfc, 0.0, 2.0),
    ps.Sin: _periodic,
    ps.Cos: _periodic,
}

OTHERS: dict[type[ps.ScalarOp], Rule] = {
    ps.Second: lambda xs: xs[1],
    ps.Switch: lambda xs: hull(xs[1:]),
    ps.ScalarMaximum: _maximum,
    ps.ScalarMinimum: _minimum,
    ps.Clip: _clip,
    ps.Pow: _pow,
    ps.Cast: lambda xs: xs[0],
}
