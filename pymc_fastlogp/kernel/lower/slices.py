r"""Slices: NumPy's rules for bounds, for static and for run-time bounds and lengths.

For a positive step, with :math:`n` the length of the axis,

.. math::

    \text{first} = \max(\text{start}, 0), \quad \text{last} = \min(\text{stop}, n), \quad
    \text{length} = \lceil \max(\text{last} - \text{first}, 0) / \text{step} \rceil

where a negative bound counts from the end. If ``first`` is beyond the end, the length is 0. For a negative step, ``first`` is ``min(start, n - 1)`` and ``last``
is ``max(stop, -1)``.

NumPy accepts bounds of any size, but the difference of two bounds can overflow int64. So run-time bounds that may be far below the array are clipped
first, and constant bounds are clipped to :data:`FAR`.
"""

from dataclasses import dataclass

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.arithmetic import (
    ZERO,
    int64,
    is_not_negative,
    minus,
    plus,
    switch,
    truth,
)
from pymc_fastlogp.kernel.ir.expressions import Const, Expr, Size, as_expr, as_size
from pymc_fastlogp.kernel.lower.array import Array, UnsupportedError
from pymc_fastlogp.kernel.lower.lengths import (
    at_least,
    ceil_quotient,
    length_of,
    smaller,
)

BEFORE_FIRST = int64(-1)
# Larger than every length, and small enough that sums of bounds do not overflow.
FAR = 1 << 60


@dataclass(frozen=True)
class Slice:
    """The positions ``start, start + step, ...`` of a slice, all in bounds."""

    start: Expr
    step: int
    length: Size


def resolve(index: slice, length: Size) -> Slice:
    """Return the positions that a slice selects along an axis; bounds are 0-d arrays or None."""
    start, stop = _bound(index.start), _bound(index.stop)
    step = int64(1) if index.step is None else _bound(index.step)
    if not isinstance(step, Const) or step.value == 0:
        raise UnsupportedError("a slice with a step that is not constant")
    size = as_expr(length)
    along = _forwards if step.value > 0 else _backwards
    first, distance = along(start, stop, size)
    count = ceil_quotient(at_least(distance, 0), abs(int(step.value)))
    return Slice(first, int(step.value), as_size(count))


def _bound(bound: Array | None) -> Expr | None:
    if bound is None:
        return None
    expr = as_expr(length_of(bound))
    return int64(max(-FAR, min(expr.value, FAR))) if isinstance(expr, Const) else expr


def _forwards(start: Expr | None, stop: Expr | None, size: Expr) -> tuple[Expr, Expr]:
    """Return the first position of a slice with a positive step, and the distance to its end, which may be negative."""
    first = ZERO if start is None else at_least(_from_start(start, size), 0)
    last = size if stop is None else _at_most(_from_start(stop, size), size)
    return first, minus(at_least(last, 0) if _may_wrap(stop, start) else last, first)


def _backwards(start: Expr | None, stop: Expr | None, size: Expr) -> tuple[Expr, Expr]:
    """Return the first position of a slice with a negative step, and the distance to its end, which may be negative."""
    end = plus(size, BEFORE_FIRST)
    first = end if start is None else _at_most(_from_start(start, size), end)
    last = BEFORE_FIRST if stop is None else at_least(_from_start(stop, size), -1)
    return first, minus(at_least(first, -1) if _may_wrap(start, stop) else first, last)


def _may_wrap(upper: Expr | None, lower: Expr | None) -> bool:
    """Return whether ``upper - lower`` may overflow because the upper bound is far below the lower bound."""
    if upper is None or lower is None or is_not_negative(upper):
        return False
    return not (isinstance(upper, Const) and isinstance(lower, Const))


def _from_start(bound: Expr, size: Expr) -> Expr:
    """Return a bound, negative if it counts from the end, as a position from the start."""
    if isinstance(bound, Const):
        return bound if bound.value >= 0 else plus(size, bound)
    if is_not_negative(bound):
        return bound
    is_negative = truth(ps.lt, bound, ZERO)
    return switch(is_negative, plus(bound, size), bound)


def _at_most(position: Expr, limit: Expr) -> Expr:
    """Return the smaller of a position and a limit, without a comparison if the position is the limit minus a constant."""
    distance = minus(position, limit)
    if isinstance(distance, Const) and distance.value <= 0:
        return position
    return smaller(position, limit)
