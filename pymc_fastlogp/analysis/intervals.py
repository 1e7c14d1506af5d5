r"""Intervals that hold every number an expression can take, and arithmetic with them.

An :class:`Interval` holds the value of each entry of a tensor, unless that is nan; whether it may be
nan is a fact of its own. A proof rests on the ends, so they hold what is *computed*, not only the number
that is meant, in any of the ways in which a backend may compute it:

- The sum of two floats is rounded to the nearest, which is monotone: if :math:`a \le A` and
  :math:`b \le B`, then :math:`fl(a + b) \le fl(A + B)`.
- Three terms may be added in any order. Each order errs by at most :math:`n\,\epsilon \sum_i |a_i|`,
  much less than :data:`SLACK` times that, by which an end is moved outward. A sum of terms that are not
  negative is no less than the largest of them, in any order.
- A product may be contracted into the sum that follows, and is then not rounded by itself; a
  quotient may be a product with a reciprocal; functions err by some units in the last place. Their ends are moved
  outward, but for products with one and quotients by one, and not past the limits that every
  implementation keeps, such as 0 and 1 of a sigmoid.
- Small results may be flushed to zero, and large ones overflow (:func:`fitted`).

Numbers make nan by :math:`\infty - \infty`, :math:`0 \cdot \infty`, :math:`0 / 0` and :math:`\infty / \infty`, and
outside of the domain of a function. In a sum of several, what is infinite may be the sum of some terms, all
of them finite; likewise in a product. The two parts that clash have no operand in common, so whichever operand
is left out, one part is whole: there is no nan if for some operand the others can make neither.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product

import numpy as np

# Of float32, the coarsest type that is analyzed, some hundred units in the last place.
SLACK = 2.0**-16

# What is larger may overflow and what is smaller may underflow, of float32 too.
HUGE, TINY = 2.0**100, 2.0**-100

# Integers up to here are floats.
EXACT_INTEGERS = 2.0**53


@dataclass(frozen=True)
class Interval:
    """Range of the entries of a tensor.

    Attributes
    ----------
    low, high : float
        Each entry that is not nan is between these, which may be infinite, as entries then may.
    nan : bool
        Whether an entry may be nan.
    plus_zero : bool
        Whether each entry that is zero is known to be one with the positive sign.
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
        """Return whether no entry has a minus sign, also none that is zero; nan may have one."""
        return self.low > 0 or (self.low == 0 and self.plus_zero)

    @property
    def is_bounded(self) -> bool:
        """Return whether no entry is infinite, or becomes so when it is rounded."""
        return self.largest <= HUGE


Operands = Sequence[Interval]


def all_of(dtype: str) -> Interval:
    """Return what a variable can hold of which nothing is known but its dtype."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return Interval(0.0, 1.0)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return Interval(float(limits.min), float(limits.max))
    return Interval(nan=True)


def of_data(data: np.ndarray) -> Interval:
    """Return what the entries of an array are."""
    if data.dtype.kind not in "biuf" or not data.size:
        return all_of(str(data.dtype))
    found = Interval(float(data.min()), float(data.max()))
    is_inexact = data.dtype.kind in "iu" and found.largest > EXACT_INTEGERS
    return all_of(str(data.dtype)) if is_inexact or math.isnan(found.low) else found


def fitted(x: Interval, dtype: str) -> Interval:
    """Return what numbers in an interval become when they are stored with a dtype."""
    if dtype == "float64" and _is_kept(x.low) and _is_kept(-x.high):
        return x
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        is_exact = not x.nan and x.largest <= EXACT_INTEGERS
        if is_exact and limits.min <= math.floor(x.low) and math.ceil(x.high) <= limits.max:
            return Interval(float(math.floor(x.low)), float(math.ceil(x.high)), x.nan)
        return all_of(dtype)
    if kind.kind != "f" or kind.itemsize < 4:
        return all_of(dtype)
    return Interval(_rounded_down(x.low, kind), -_rounded_down(-x.high, kind), x.nan, x.plus_zero)


def _is_kept(low: float) -> bool:
    """Return whether a lower end in double precision stays what it is."""
    return low <= 0 or TINY <= low <= HUGE


def _rounded_down(low: float, dtype: np.dtype) -> float:
    """Return a lower end in a float dtype, where numbers above it may underflow or not overflow."""
    if low > 0:
        low = min(low, HUGE) if low >= TINY else 0.0
    nearest = dtype.type(low)
    return float(nearest if nearest <= low else np.nextafter(nearest, dtype.type(-np.inf)))


def hull(xs: Operands) -> Interval:
    """Return the smallest interval that holds all of these."""
    return Interval(
        min(x.low for x in xs),
        max(x.high for x in xs),
        any(x.nan for x in xs),
        all(x.plus_zero for x in xs),
    )


def widened(low: float, high: float) -> Interval:
    """Return the interval of these ends, each moved outward by the slack."""
    return Interval(_lower(low), -_lower(-high))


def _lower(low: float) -> float:
    return low - SLACK * abs(low) if math.isfinite(low) else low


def negate(x: Interval) -> Interval:
    """Return what the negative of a number in this interval can be."""
    return Interval(-x.high, -x.low, x.nan)


def add(xs: Operands) -> Interval:
    """Return what the sum of numbers in these intervals can be."""
    makes_nan = _clash(xs, _reaches_plus_infinity, _reaches_minus_infinity)
    return Interval(_sum([x.low for x in xs]), -_sum([-x.high for x in xs]), makes_nan)


def _sum(lows: list[float]) -> float:
    """Return a lower bound of sums of numbers that are no less than these."""
    if -math.inf in lows:
        return -math.inf
    low = sum(lows)
    if len(lows) > 2 and math.isfinite(low):
        low -= SLACK * sum(map(abs, lows))
    return max(low, *lows) if min(lows) >= 0 else low


def multiply(xs: Operands) -> Interval:
    """Return what the product of numbers in these intervals can be."""
    makes_nan = _clash(xs, _reaches_infinity, _reaches_zero)
    return replace(reduce(_product, xs), nan=makes_nan, plus_zero=all(x.is_signless for x in xs))


def _product(x: Interval, y: Interval) -> Interval:
    return hull([_of_two(a, b) for a, b in product((x.low, x.high), (y.low, y.high))])


def _of_two(a: float, b: float) -> Interval:
    """Return an interval around a product; zero times infinity is nan, but the limit of zeros."""
    if a == 0 or b == 0:
        return Interval(0.0, 0.0)
    is_exact = abs(a) == 1 or abs(b) == 1
    return Interval(a * b, a * b) if is_exact else widened(a * b, a * b)


def divide(x: Interval, y: Interval) -> Interval:
    """Return what the quotient of numbers in two intervals can be."""
    if y.smallest < TINY:
        nan = x.smallest < TINY or not (x.is_bounded and y.is_bounded)
        if not y.is_signless:
            # A zero may have either sign.
            return Interval(nan=nan)
        low, high = 0.0 if x.low >= 0 else -math.inf, 0.0 if x.high <= 0 else math.inf
        return Interval(low, high, nan, x.is_signless)
    inverse = hull([_inverse(y.low), _inverse(y.high)])
    nan = not (x.is_bounded or y.is_bounded)
    return replace(_product(x, inverse), nan=nan, plus_zero=x.is_signless and y.is_signless)


def _inverse(end: float) -> Interval:
    return Interval(end, end) if abs(end) == 1 else widened(1 / end, 1 / end)


def _clash(
    xs: Operands, reaches_one: Callable[[Operands], bool], reaches_other: Callable[[Operands], bool]
) -> bool:
    """Return whether some of the operands can make the one, and others the other, which give nan."""
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
