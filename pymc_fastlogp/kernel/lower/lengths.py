"""Arithmetic on lengths, simplified so that equal lengths are usually the same expression.

Scalars that a graph computes from lengths and from integer inputs stay expressions instead of stored results. So they can be lengths of loops, which the emitted
code evaluates before the first loop.
"""

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.arithmetic import (
    ONE,
    ZERO,
    cast,
    int64,
    is_not_negative,
    plus,
    product_of_sizes,
    switch,
    truth,
)
from pymc_fastlogp.kernel.ir.expressions import (
    Compute,
    Const,
    Expr,
    Index,
    Load,
    Role,
    Size,
    as_expr,
    as_size,
)
from pymc_fastlogp.kernel.ir.traversal import walk
from pymc_fastlogp.kernel.lower.array import Array, UnsupportedError


def is_known_at_call(expr: Expr) -> bool:
    """Return whether an expression depends only on lengths and inputs, not on indices or computed buffers."""
    return not any(
        isinstance(part, Index) or (isinstance(part, Load) and part.buffer.role is not Role.INPUT)
        for part in walk([expr])
    )


def length_of(array: Array, *index: int) -> Size:
    """Return an element of an integer array as a length; raise UnsupportedError if the element depends on computed buffers."""
    expr = cast(array.at(tuple(int64(i) for i in index)), "int64")
    if not is_known_at_call(expr):
        raise UnsupportedError("a length that is computed from data")
    return as_size(expr)


def smaller(a: Expr, b: Expr) -> Expr:
    """Return the smaller of two lengths."""
    if isinstance(a, Const) and isinstance(b, Const):
        return a if a.value <= b.value else b
    return a if a is b else Compute(ps.minimum, (a, b), "int64")


def at_least(expr: Expr, bound: int) -> Expr:
    """Return the larger of a length and a bound, which is 0 or negative."""
    if isinstance(expr, Const):
        return int64(max(expr.value, bound))
    limit = int64(bound)
    return expr if is_not_negative(expr) else Compute(ps.maximum, (expr, limit), "int64")


def ceil_quotient(expr: Expr, divisor: int) -> Expr:
    """Return ``ceil(expr / divisor)`` for a non-negative length and a positive divisor."""
    if divisor == 1:
        return expr
    if isinstance(expr, Const):
        return int64(-(-expr.value // divisor))
    # (expr - 1) // divisor + 1; `expr + divisor` could overflow. Division rounds down, so 0 gives 0.
    below = Compute(ps.int_div, (plus(expr, int64(-1)), int64(divisor)), "int64")
    return plus(below, ONE)


def unknown_length(total: Size, known: tuple[Size, ...]) -> Size:
    """Return the one unknown length of a shape with ``total`` elements.

    The quotient is rounded down if the known lengths do not divide the total; the caller checks.
    """
    product = product_of_sizes(known)
    if isinstance(total, int) and isinstance(product, int):
        return total // max(product, 1)
    divisor = Compute(ps.maximum, (as_expr(product), int64(1)), "int64")
    return total if product == 1 else Compute(ps.int_div, (as_expr(total), divisor), "int64")


def if_negative(size: Size, yes: Size, no: Size) -> Size:
    """Return ``yes`` if a size is negative, else ``no``."""
    expr = as_expr(size)
    if is_not_negative(expr):
        return no
    if isinstance(size, int):
        return yes
    return switch(truth(ps.lt, expr, ZERO), as_expr(yes), as_expr(no))
