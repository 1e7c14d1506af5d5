r"""Interval arithmetic: bounds of every value that an expression can take.

An :class:`Interval` bounds the entries of a tensor that are not nan, and says whether an entry may be nan. A proof rests on the bounds,
so they hold for the *computed* values, however a backend computes them:

- **A sum of two floats** is rounded to nearest, which is monotone: if :math:`a \le A` and :math:`b \le B`, then
  :math:`fl(a + b) \le fl(A + B)`.
- **A sum of three or more terms** may be added in any order. Each order errs by at most :math:`n\,\epsilon \sum_i |a_i|`.
  Bounds are widen by :data:`SLACK` times :math:`\sum_i |a_i|`, which is much more. A sum of nonnegative terms is at least its
  largest term, in any order.
- **A product** may be contracted into a following sum, and is then not rounded itself. A quotient may be a product with a reciprocal.
  Functions err by a few units in the last place. Their bounds are widen, except for products with one and quotients by one.
  They stay within the limits that every implementation keeps, such as 0 and 1 for a sigmoid.
- **Small results** may be flushed to zero, and large ones may overflow (:func:`stored_as`).

Numbers give nan by :math:`\infty - \infty`, :math:`0 \cdot \infty`, :math:`0 / 0`, :math:`\infty / \infty`, and outside the domain of a
function. In a sum of several finite terms a partial sum may overflow, and likewise a partial product. Write the two clashing
partial results as :math:`p` and :math:`q`. They have no operand in common, so without any one operand :math:`p` or :math:`q` can still be
formed. Hence there is no nan if for some operand the others can form neither.

A function here takes the intervals of numbers to the interval of the result, and says whether numbers give nan. If an Op may return
a number for a nan operand, the interval holds that number, too.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product

import numpy as np
import pytensor.scalar as ps

# 128 units in the last place of float32, the coarsest analyzed dtype.
SLACK = 2.0**-16

# Larger magnitudes may overflow and smaller ones underflow, in float32, too.
HUGE, TINY = 2.0**100, 2.0**-100

# All integers up to here are exact in float64.
EXACT_INTEGERS = 2.0**53


@dataclass(frozen=True)
class Interval:
    """Range of the entries of a tensor.

    Attributes
    ----------
    low, high : float
        Bounds of each entry that is not nan. If a bound is infinite, entries may be, too.
    nan : bool
        Whether an entry may be nan.
    plus_zero : bool
        Whether every zero entry is known to have a positive sign.
    """

    low: float = -math.inf
    high: float = math.inf
    nan: bool = False
    plus_zero: bool = False

    @property
    def largest(self) -> float:
        """Return the largest absolute value."""
        return max(abs(self.low), abs(self.high))

    @property
    def smallest(self) -> float:
        """Return the smallest absolute value."""
        return 0.0 if self.low <= 0 <= self.high else min(abs(self.low), abs(self.high))

    @property
    def is_signless(self) -> bool:
        """Return whether no entry has its sign bit set, zero included; nan may have it set."""
        return self.low > 0 or (self.low == 0 and self.plus_zero)

    @property
    def is_bounded(self) -> bool:
        """Return whether no entry is infinite, before or after rounding."""
        return self.largest <= HUGE


Operands = Sequence[Interval]
IntervalFunction = Callable[[Operands], Interval]


def range_of_dtype(dtype: str) -> Interval:
    """Return the interval of all values of a dtype."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return Interval(0.0, 1.0)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return Interval(float(limits.min), float(limits.max))
    return Interval(nan=True)


def range_of_data(data: np.ndarray) -> Interval:
    """Return the interval of the entries of an array."""
    if data.dtype.kind not in "biuf" or not data.size:
        return range_of_dtype(str(data.dtype))
    found = Interval(float(data.min()), float(data.max()))
    is_inexact = data.dtype.kind in "iu" and found.largest > EXACT_INTEGERS
    return range_of_dtype(str(data.dtype)) if is_inexact or math.isnan(found.low) else found


def stored_as(x: Interval, dtype: str) -> Interval:
    """Return the interval of numbers after they are stored with a dtype."""
    if dtype == "float64" and _is_exact_in_double(x.low) and _is_exact_in_double(-x.high):
        return x
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        is_exact = not x.nan and x.largest <= EXACT_INTEGERS
        if is_exact and limits.min <= math.floor(x.low) and math.ceil(x.high) <= limits.max:
            return Interval(float(math.floor(x.low)), float(math.ceil(x.high)), x.nan)
        return range_of_dtype(dtype)
    if kind.kind != "f" or kind.itemsize < 4:
        return range_of_dtype(dtype)
    return Interval(_round_down(x.low, kind), -_round_down(-x.high, kind), x.nan, x.plus_zero)


def _is_exact_in_double(low: float) -> bool:
    """Return whether rounding down in double precision leaves a lower bound unchanged."""
    return low <= 0 or TINY <= low <= HUGE


def _round_down(low: float, dtype: np.dtype) -> float:
    """Round a lower bound down in a float dtype, where numbers above it may underflow or not overflow."""
    if low > 0:
        low = min(low, HUGE) if low >= TINY else 0.0
    nearest = dtype.type(low)
    return float(nearest if nearest <= low else np.nextafter(nearest, dtype.type(-np.inf)))


def hull(xs: Operands) -> Interval:
    """Return the smallest interval that contains all given intervals."""
    return Interval(
        min(x.low for x in xs),
        max(x.high for x in xs),
        any(x.nan for x in xs),
        all(x.plus_zero for x in xs),
    )


def widen(low: float, high: float) -> Interval:
    """Return an interval with both bounds moved outward by the slack."""
    return Interval(_lower(low), -_lower(-high))


def _lower(low: float) -> float:
    return low - SLACK * abs(low) if math.isfinite(low) else low


def negate(x: Interval) -> Interval:
    """Return the range of ``-x``."""
    return Interval(-x.high, -x.low, x.nan)


def add(xs: Operands) -> Interval:
    """Return the range of a sum."""
    makes_nan = _clash(xs, _reaches_plus_infinity, _reaches_minus_infinity)
    return Interval(_sum([x.low for x in xs]), -_sum([-x.high for x in xs]), makes_nan)


def _sum(lows: list[float]) -> float:
    """Return a lower bound of the sum of numbers with these lower bounds."""
    if -math.inf in lows:
        return -math.inf
    low = sum(lows)
    if len(lows) > 2 and math.isfinite(low):
        low -= SLACK * sum(map(abs, lows))
    return max(low, *lows) if min(lows) >= 0 else low


def multiply(xs: Operands) -> Interval:
    """Return the range of a product."""
    makes_nan = _clash(xs, _reaches_infinity, _reaches_zero)
    return replace(reduce(_product, xs), nan=makes_nan, plus_zero=all(x.is_signless for x in xs))


def _product(x: Interval, y: Interval) -> Interval:
    return hull([_of_two(a, b) for a, b in product((x.low, x.high), (y.low, y.high))])


def _of_two(a: float, b: float) -> Interval:
    """Return an interval around the product of two bounds; zero times infinity counts as zero, the limit from finite numbers."""
    if a == 0 or b == 0:
        return Interval(0.0, 0.0)
    is_exact = abs(a) == 1 or abs(b) == 1
    return Interval(a * b, a * b) if is_exact else widen(a * b, a * b)


def divide(x: Interval, y: Interval) -> Interval:
    """Return the range of ``x / y``."""
    if y.smallest < TINY:
        nan = x.smallest < TINY or not (x.is_bounded and y.is_bounded)
        if not y.is_signless:
            # The denominator may be zero with either sign.
            return Interval(nan=nan)
        low, high = 0.0 if x.low >= 0 else -math.inf, 0.0 if x.high <= 0 else math.inf
        return Interval(low, high, nan, x.is_signless)
    inverse = hull([_inverse(y.low), _inverse(y.high)])
    nan = not (x.is_bounded or y.is_bounded)
    return replace(_product(x, inverse), nan=nan, plus_zero=x.is_signless and y.is_signless)


def _inverse(end: float) -> Interval:
    return Interval(end, end) if abs(end) == 1 else widen(1 / end, 1 / end)


def _clash(
    xs: Operands, reaches_one: Callable[[Operands], bool], reaches_other: Callable[[Operands], bool]
) -> bool:
    """Return whether disjoint subsets of the operands can reach two partial results that combine to nan."""
    without_one = [[*xs[:i], *xs[i + 1 :]] for i in range(len(xs))]
    return all(reaches_one(others) or reaches_other(others) for others in without_one) and (
        reaches_one(xs) and reaches_other(xs)
    )


def _reaches_plus_infinity(xs: Operands) -> bool:
    return sum(max(x.high, 0.0) for x in xs) > HUGE


def _reaches_minus_infinity(xs: Operands) -> bool:
    return sum(min(x.low, 0.0) for x in xs) < -HUGE


def _reaches_infinity(xs: Operands) -> bool:
    return math.prod(max(x.largest, 1.0) for x in xs) > HUGE


def _reaches_zero(xs: Operands) -> bool:
    return math.prod(min(x.smallest, 1.0) for x in xs) < TINY


# Interval functions of scalar Ops.


def monotone(
    f: ps.UnaryScalarOp,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    domain: float = -math.inf,
) -> IntervalFunction:
    """Return the interval function of a monotone ``f`` on ``[domain, inf)`` with values in ``[low, high]``.

    A function with the limit 0 reaches it from above. The exception is ``sqrt(-0.0)``, where the domain ends, too.
    """
    plus_zero = low == 0 and domain < 0

    def interval(xs: Operands) -> Interval:
        [x] = xs
        ends = sorted(float(f.impl(max(end, domain))) for end in (x.low, x.high))
        y = widen(*ends)
        return Interval(max(y.low, low), min(y.high, high), x.low < domain, plus_zero)

    return interval


def periodic(xs: Operands) -> Interval:
    """Return the range of a sine or cosine."""
    return Interval(-1.0, 1.0, nan=not xs[0].is_bounded)


def absolute(xs: Operands) -> Interval:
    """Return the range of ``abs(x)``."""
    return Interval(xs[0].smallest, xs[0].largest, plus_zero=True)


def square(xs: Operands) -> Interval:
    """Return the range of ``x ** 2``."""
    size = absolute(xs)
    return replace(multiply([size, size]), nan=False)  # one number is not both zero and infinite


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
    """Return the range of ``maximum(x, y)``, where an implementation may return the number if the other operand is nan."""
    x, y = xs
    both = Interval(max(x.low, y.low), max(x.high, y.high))
    return hull([both, *(other for other, nan in ((x, y.nan), (y, x.nan)) if nan)])


def minimum(xs: Operands) -> Interval:
    """Return the range of ``minimum(x, y)``; nan operands are handled as in :func:`maximum`."""
    return negate(maximum([negate(x) for x in xs]))


def clip(xs: Operands) -> Interval:
    """Return the range of ``clip(x, low, high)``."""
    x, low, high = xs
    if low.nan or high.nan or low.high > high.low:
        return hull(xs)
    # `clip` is monotone in each operand; the limits may differ between entries.
    return Interval(
        min(max(x.low, low.low), high.low), max(min(x.high, high.high), low.high), x.nan
    )


square_root = monotone(ps.sqrt, 0.0, domain=0.0)
