"""Interval arithmetic of scalar Ops, named by the rows of :mod:`~pymc_fastlogp.analysis.scalar_facts`.

A rule says what numbers become, and whether they make nan. Where an Op may return a number for an operand that is nan,
the interval of its rule holds that number as well.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import pytensor.scalar as ps

from pymc_fastlogp.analysis.intervals import Interval, Operands, hull, multiply, negate, widened

Rule = Callable[[Operands], Interval]


def monotone(
    f: ps.UnaryScalarOp,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    domain: float = -math.inf,
) -> Rule:
    """Return the rule of a monotone function of numbers from ``domain`` on, within its limits.

    One that ends at zero comes to it from above, but for the root of ``-0``, where its domain ends as well.
    """
    plus_zero = low == 0 and domain < 0

    def rule(xs: Operands) -> Interval:
        [x] = xs
        ends = sorted(float(f.impl(max(end, domain))) for end in (x.low, x.high))
        y = widened(*ends)
        return Interval(max(y.low, low), min(y.high, high), x.low < domain, plus_zero)

    return rule


def periodic(xs: Operands) -> Interval:
    """Return the range of a sine or cosine."""
    return Interval(-1.0, 1.0, nan=not xs[0].is_bounded)


def absolute(xs: Operands) -> Interval:
    """Return the range of ``abs(x)``."""
    return Interval(xs[0].smallest, xs[0].largest, plus_zero=True)


def square(xs: Operands) -> Interval:
    """Return the range of ``x ** 2``."""
    size = absolute(xs)
    return replace(multiply([size, size]), nan=False)  # a number is not both zero and infinite


def power(xs: Operands) -> Interval:
    """Return the range of ``x ** y``."""
    base, exponent = xs
    if exponent == Interval(2.0, 2.0):
        return square([base])
    if exponent == Interval(0.5, 0.5):
        return square_root([base])
    if base.low >= 1 and exponent.low >= 0:
        return Interval(1.0)
    if base.low > 0 or (base.low == 0 and exponent.low >= 0):
        return Interval(0.0)
    return Interval(nan=True)


def maximum(xs: Operands) -> Interval:
    """Return the range of ``maximum(x, y)``, which is the other where one is nan."""
    x, y = xs
    both = Interval(max(x.low, y.low), max(x.high, y.high))
    return hull([both, *(other for other, nan in ((x, y.nan), (y, x.nan)) if nan)])


def minimum(xs: Operands) -> Interval:
    """Return the range of ``minimum(x, y)``, which is the other where one is nan."""
    return negate(maximum([negate(x) for x in xs]))


def clip(xs: Operands) -> Interval:
    """Return the range of ``clip(x, low, high)``."""
    x, low, high = xs
    if low.nan or high.nan or low.high > high.low:
        return hull(xs)
    # It grows with each of the three, which may differ from row to row.
    return Interval(
        min(max(x.low, low.low), high.low), max(min(x.high, high.high), low.high), x.nan
    )


square_root = monotone(ps.sqrt, 0.0, domain=0.0)
