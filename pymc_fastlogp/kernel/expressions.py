"""Constants, casts and integer arithmetic on expressions, simplified as they are made."""

from functools import reduce

import numpy as np
from pytensor import scalar as ps
from pytensor.scalar.basic import Cast, ScalarOp, get_scalar_type

from pymc_fastlogp.kernel.loops import (
    Compute,
    Const,
    Expr,
    Index,
    Load,
    Role,
    Size,
    as_expr,
    as_size,
    walk,
)

ZERO = Const(0, "int64")


def const(value: float, dtype: str) -> Const:
    """Return a constant; the number is a Python one of the kind of the dtype."""
    return Const(np.dtype(dtype).type(value).item(), dtype)


def cast(expr: Expr, dtype: str) -> Expr:
    """Return an expression as another type."""
    if expr.dtype == dtype:
        return expr
    if isinstance(expr, Const):
        return const(expr.value, dtype)
    return Compute(Cast(get_scalar_type(dtype)), (expr,), dtype)


def reads_directly(expr: Expr) -> bool:
    """Whether no position that is read depends on what is read."""
    loads = (part for part in walk([expr]) if isinstance(part, Load))
    return not any(isinstance(part, Load) for load in loads for part in walk(load.index))


def identity(op: ScalarOp, dtype: str) -> Const:
    """Return the number that an operation leaves every other as it is with; an integer cannot be infinite."""
    if isinstance(op, ps.Maximum | ps.Minimum) and np.dtype(dtype).kind != "f":
        limits = (False, True) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return const(limits[isinstance(op, ps.Minimum)], dtype)
    return const(op.identity, dtype)


def plus(a: Expr, b: Expr) -> Expr:
    """Return the sum of two int64 expressions."""
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(a.value + b.value, "int64")
    if isinstance(a, Const):
        a, b = b, a
    return a if b is ZERO else Compute(ps.add, (a, b), "int64")


def times(a: Expr, b: Expr) -> Expr:
    """Return the product of two int64 expressions."""
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(a.value * b.value, "int64")
    if isinstance(a, Const):
        a, b = b, a
    if b is ZERO:
        return ZERO
    return a if b is Const(1, "int64") else Compute(ps.mul, (a, b), "int64")


def folded(expr: Expr) -> Expr:
    """Return integer arithmetic and elements of constants with what is known computed."""
    if isinstance(expr, Load):
        return _element(expr)
    if not isinstance(expr, Compute) or expr.dtype != "int64":
        return expr
    if isinstance(expr.op, Cast):
        return cast(expr.args[0], "int64") if isinstance(expr.args[0], Const) else expr
    if any(arg.dtype != "int64" for arg in expr.args):
        return expr
    if isinstance(expr.op, ps.Add):
        return reduce(plus, expr.args)
    return reduce(times, expr.args) if isinstance(expr.op, ps.Mul) else expr


def _element(load: Load) -> Expr:
    """Return an element of a constant as a number if its place is known."""
    position = flat_index(load.buffer.shape, load.index)
    if load.buffer.role is not Role.CONSTANT or not isinstance(position, Const):
        return load
    data = np.frombuffer(load.buffer.data, load.dtype)
    return const(data[int(position.value)], load.dtype)


def sum_of_sizes(sizes: tuple[Size, ...]) -> Size:
    """Return the sum of lengths."""
    total: Expr = ZERO
    for size in sizes:
        total = plus(total, as_expr(size))
    return as_size(total)


def product_of_sizes(sizes: tuple[Size, ...]) -> Size:
    """Return the product of lengths."""
    total: Expr = Const(1, "int64")
    for size in sizes:
        total = times(total, as_expr(size))
    return as_size(total)


def domain_of(shape: tuple[Size, ...]) -> tuple[tuple[Size, ...], tuple[Expr, ...]]:
    """Return the domain of a loop over an array of this shape, and the index of its element.

    Axes of length 1 are left out of the domain, so that a scalar and a vector of one element are the same.
    """
    domain: list[Size] = []
    index: list[Expr] = []
    for size in shape:
        if size == 1:
            index.append(ZERO)
        else:
            index.append(Index(len(domain)))
            domain.append(size)
    return tuple(domain), tuple(index)


def flat_index(shape: tuple[Size, ...], index: tuple[Expr, ...]) -> Expr:
    """Return the position of an element in C order."""
    position: Expr = ZERO
    for size, i in zip(shape, index, strict=True):
        position = plus(times(position, as_expr(size)), i)
    return position
