"""Arithmetic on lengths, simplified so that equal lengths of one input are most often one expression.

What a graph computes of lengths and of integer inputs without axes is not stored but stays an expression, so that
it can be the length of a loop: the emitter needs that before the first loop runs.
"""

from pytensor import scalar as ps

from pymc_fastlogp.kernel.expressions import ZERO, cast, plus, product_of_sizes
from pymc_fastlogp.kernel.loops import (
    Compute,
    Const,
    Expr,
    Index,
    Length,
    Load,
    Role,
    Size,
    as_expr,
    as_size,
    walk,
)
from pymc_fastlogp.kernel.lower.array import Array, UnsupportedError


def is_known_at_call(expr: Expr) -> bool:
    """Whether an expression is the same for the whole call, and nothing has to be computed first."""
    return not any(
        isinstance(part, Index) or (isinstance(part, Load) and part.buffer.role is not Role.INPUT)
        for part in walk([expr])
    )


def length_of(array: Array, *index: int) -> Size:
    """Return an element of an integer array as a length.

    Raises
    ------
    UnsupportedError
        If the element has to be computed first.
    """
    expr = cast(array.at(tuple(Const(i, "int64") for i in index)), "int64")
    if not is_known_at_call(expr):
        raise UnsupportedError("a length that is computed from data")
    return as_size(expr)


def minus(a: Expr, b: Expr) -> Expr:
    """Return the difference of two lengths."""
    if a is b:
        return ZERO
    if not isinstance(b, Const):
        return Compute(ps.sub, (a, b), "int64")
    if isinstance(a, Compute) and isinstance(a.op, ps.Add) and isinstance(a.args[1], Const):
        return plus(a.args[0], Const(a.args[1].value - b.value, "int64"))
    return plus(a, Const(-b.value, "int64"))


def smaller(a: Expr, b: Expr) -> Expr:
    """Return the smaller one of two lengths."""
    if isinstance(a, Const) and isinstance(b, Const):
        return a if a.value <= b.value else b
    return a if a is b else Compute(ps.minimum, (a, b), "int64")


def at_least(expr: Expr, bound: int) -> Expr:
    """Return a length, or the bound of 0 or less where that is larger."""
    if isinstance(expr, Const):
        return Const(max(expr.value, bound), "int64")
    limit = Const(bound, "int64")
    return expr if is_not_negative(expr) else Compute(ps.maximum, (expr, limit), "int64")


def quotient_up(expr: Expr, divisor: int) -> Expr:
    """Return the quotient of a length that is not negative by a positive number, rounded up."""
    if divisor == 1:
        return expr
    if isinstance(expr, Const):
        return Const(-(-expr.value // divisor), "int64")
    above = plus(expr, Const(divisor - 1, "int64"))
    return Compute(ps.int_div, (above, Const(divisor, "int64")), "int64")


def rest_of(total: Size, known: tuple[Size, ...]) -> Size:
    """Return what a number of elements leaves for the one length that is not known.

    It is not a whole number, or 0, where the known lengths do not fit; the caller checks.
    """
    product = product_of_sizes(known)
    if isinstance(total, int) and isinstance(product, int):
        return total // max(product, 1)
    divisor = Compute(ps.maximum, (as_expr(product), Const(1, "int64")), "int64")
    return total if product == 1 else Compute(ps.int_div, (as_expr(total), divisor), "int64")


def if_negative(size: Size, yes: Size, no: Size) -> Size:
    """Return one of two lengths, by whether a given number is negative."""
    expr = as_expr(size)
    if is_not_negative(expr):
        return no
    if isinstance(size, int):
        return yes
    is_negative = Compute(ps.lt, (expr, ZERO), "bool")
    return Compute(ps.switch, (is_negative, as_expr(yes), as_expr(no)), "int64")


def is_not_negative(expr: Expr) -> bool:
    """Whether a length is known to be at least 0."""
    if isinstance(expr, Const):
        return expr.value >= 0
    if isinstance(expr, Compute) and isinstance(expr.op, ps.Add | ps.Mul | ps.Minimum):
        return all(map(is_not_negative, expr.args))
    if isinstance(expr, Compute) and isinstance(expr.op, ps.Maximum):
        return any(map(is_not_negative, expr.args))
    return isinstance(expr, Length)
