"""Constructors for constants, casts and integer arithmetic, which simplify the expressions."""

from collections.abc import Sequence
from functools import reduce

import numpy as np
from pytensor import scalar as ps
from pytensor.scalar.basic import Cast, ScalarOp, get_scalar_type

from pymc_fastlogp.kernel.ir.expressions import (
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
)

ZERO, ONE = Const(0, "int64"), Const(1, "int64")


def const(value: float, dtype: str) -> Const:
    """Return a constant, with the value rounded or wrapped to the dtype."""
    with np.errstate(over="ignore", invalid="ignore"):
        return Const(np.asarray(value).astype(dtype).item(), dtype)


def int64(value: float) -> Const:
    """Return an int64 constant."""
    return Const(int(value), "int64")


def cast(expr: Expr, dtype: str) -> Expr:
    """Return an expression converted to a dtype."""
    if expr.dtype == dtype:
        return expr
    if isinstance(expr, Const):
        return const(expr.value, dtype)
    return Compute(Cast(get_scalar_type(dtype)), (expr,), dtype)


def identity(op: ScalarOp, dtype: str) -> Const:
    """Return the result of an operation over no numbers: its identity, apart from -0.0. For integers, limits replace infinities."""
    if isinstance(op, ps.Maximum | ps.Minimum) and np.dtype(dtype).kind != "f":
        limits = (False, True) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return const(limits[isinstance(op, ps.Minimum)], dtype)
    return const(op.identity, dtype)


def neutral(op: ScalarOp, dtype: str) -> Const:
    """Return the number ``e`` with ``op(e, x) == x`` bit by bit for every x."""
    # -0.0 + x is x for every x, but 0.0 + -0.0 is 0.0.
    is_sum_of_floats = isinstance(op, ps.Add) and np.dtype(dtype).kind == "f"
    return const(-0.0, dtype) if is_sum_of_floats else identity(op, dtype)


def truth(op: ScalarOp, *args: Expr) -> Compute:
    """Return a scalar Op with a bool result: a comparison or a logical operation."""
    return Compute(op, args, "bool")


def switch(condition: Expr, yes: Expr, no: Expr) -> Compute:
    """Return ``yes`` if the condition holds, else ``no``; both have the same dtype."""
    return Compute(ps.switch, (condition, yes, no), yes.dtype)


def all_of(conditions: Sequence[Expr]) -> Expr:
    """Return the conjunction of at least one condition."""
    return reduce(lambda a, b: truth(ps.and_, a, b), conditions)


def plus(a: Expr, b: Expr) -> Expr:
    """Return the sum of two int64 expressions."""
    if isinstance(a, Const) and isinstance(b, Const):
        return int64(a.value + b.value)
    if isinstance(a, Const):
        a, b = b, a
    return a if b is ZERO else Compute(ps.add, (a, b), "int64")


def times(a: Expr, b: Expr) -> Expr:
    """Return the product of two int64 expressions."""
    if isinstance(a, Const) and isinstance(b, Const):
        return int64(a.value * b.value)
    if isinstance(a, Const):
        a, b = b, a
    if b is ZERO:
        return ZERO
    return a if b is ONE else Compute(ps.mul, (a, b), "int64")


def minus(a: Expr, b: Expr) -> Expr:
    """Return the difference of two int64 expressions."""
    if a is b:
        return ZERO
    if isinstance(a, Compute) and isinstance(a.op, ps.Add) and len(a.args) == 2:
        base, offset = a.args
        if base is b:
            return offset
        if isinstance(offset, Const) and isinstance(b, Const):
            return plus(base, int64(offset.value - b.value))
    return plus(a, int64(-b.value)) if isinstance(b, Const) else Compute(ps.sub, (a, b), "int64")


def fold_constants(expr: Expr) -> Expr:
    """Return an expression after constant folding of integer arithmetic and elements of constants."""
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
    """Return an element of a constant buffer as a number if its index is constant."""
    position = flat_index(load.buffer.shape, load.index)
    if load.buffer.role is not Role.CONSTANT or not isinstance(position, Const):
        return load
    data = np.frombuffer(load.buffer.data, load.dtype)
    # A position out of bounds is never read: a check ends the kernel before.
    is_inside = 0 <= position.value < data.size
    return const(data[int(position.value)], load.dtype) if is_inside else load


def is_not_negative(expr: Expr) -> bool:
    """Return whether an expression is known to be non-negative; cached on the expression, since lengths share operands."""
    if "is_not_negative" not in vars(expr):
        vars(expr)["is_not_negative"] = _is_not_negative(expr)
    return vars(expr)["is_not_negative"]


def _is_not_negative(expr: Expr) -> bool:
    if isinstance(expr, Const):
        return expr.value >= 0
    if isinstance(expr, Compute) and isinstance(expr.op, ps.Add | ps.Mul | ps.Minimum):
        return all(map(is_not_negative, expr.args))
    if isinstance(expr, Compute) and isinstance(expr.op, ps.Maximum):
        return any(map(is_not_negative, expr.args))
    return isinstance(expr, Length)


def sum_of_sizes(sizes: tuple[Size, ...]) -> Size:
    """Return the sum of lengths."""
    return as_size(reduce(plus, [ZERO, *map(as_expr, sizes)]))


def product_of_sizes(sizes: tuple[Size, ...]) -> Size:
    """Return the product of lengths."""
    return as_size(reduce(times, [ONE, *map(as_expr, sizes)]))


def domain_of(shape: tuple[Size, ...]) -> tuple[tuple[Size, ...], tuple[Expr, ...]]:
    """Return the domain of a loop over an array of this shape, and the index of an element.

    Axes of static length 1 are left out of the domain, so that loops over a scalar and over one element can be fused.
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


def offset_from(base: Expr, position: Expr) -> int | None:
    """Return the constant ``position - base``, or None if the difference is not a constant."""
    found, offset = base_and_offset(position)
    return offset if found is base else None


def base_and_offset(position: Expr) -> tuple[Expr, int]:
    """Split a position into a base and a constant offset."""
    if isinstance(position, Const):
        return ZERO, int(position.value)
    if isinstance(position, Compute) and isinstance(position.op, ps.Add):
        *bases, offset = position.args
        if len(bases) == 1 and isinstance(offset, Const):
            return bases[0], int(offset.value)
    return position, 0


def flat_index(shape: tuple[Size, ...], index: tuple[Expr, ...]) -> Expr:
    """Return the position of an element in C order."""
    position: Expr = ZERO
    for size, i in zip(shape, index, strict=True):
        position = plus(times(position, as_expr(size)), i)
    return position
