"""Arithmetic on lengths, simplified so that equal lengths of one input are most often one expression.

What a graph computes of lengths and of integer inputs without axes is not stored but stays an expression, so that
it can be the length of a loop: the emitter needs that before the first loop runs.
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
    """Return whether an expression is the same for the whole call, and nothing has to be computed first."""
    return not any(
        isinstance(part, Index) or (isinstance(part, Load) and part.buffer.role is not Role.INPUT)
        for part in walk([expr])
    )


def length_of(array: Array, *index: int) -> Size:
    """Return an element of an integer array as a length; unsupported if it has to be computed first."""
    expr = cast(array.at(tuple(int64(i) for i in index)), "int64")
    if not is_known_at_call(expr):
        raise UnsupportedError("a length that is computed from data")
    return as_size(expr)


def smaller(a: Expr, b: Expr) -> Expr:
    """Return the smaller one of two lengths."""
    if isinstance(a, Const) and isinstance(b, Const):
        return a if a.value <= b.value else b
    return a if a is b else Compute(ps.minimum, (a, b), "int64")


def at_least(expr: Expr, bound: int) -> Expr:
    """Return a length, or the bound of 0 or less where that is larger."""
    if isinstance(expr, Const):
        return int64(max(expr.value, bound))
    limit = int64(bound)
    return expr if is_not_negative(expr) else Compute(ps.maximum, (expr, limit), "int64")


def quotient_up(expr: Expr, divisor: int) -> Expr:
    """Return the quotient of a length that is not negative by a positive number, rounded up."""
    if divisor == 1:
        return expr
    if isinstance(expr, Const):
        return int64(-(-expr.value // divisor))
    # The quotient is rounded down, that of -1 to -1; a sum of length and divisor may be no int64.
    below = Compute(ps.int_div, (plus(expr, int64(-1)), int64(divisor)), "int64")
    return plus(below, ONE)


def rest_of(total: Size, known: tuple[Size, ...]) -> Size:
    """Return what a number of elements leaves for the one length that is not known.

    It is not a whole number, or 0, where the known lengths do not fit; the caller checks.
    """
    product = product_of_sizes(known)
    if isinstance(total, int) and isinstance(product, int):
        return total // max(product, 1)
    divisor = Compute(ps.maximum, (as_expr(product), int64(1)), "int64")
    return total if product == 1 else Compute(ps.int_div, (as_expr(total), divisor), "int64")


def if_negative(size: Size, yes: Size, no: Size) -> Size:
    """Return one of two lengths, by whether a given number is negative."""
    expr = as_expr(size)
    if is_not_negative(expr):
        return no
    if isinstance(size, int):
        return yes
    return switch(truth(ps.lt, expr, ZERO), as_expr(yes), as_expr(no))
