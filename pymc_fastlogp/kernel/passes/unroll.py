"""Short axes become straight-line code in the loop over the long one.

The cut points of an ordered regression, or the classes of a categorical one, make loops over
``rows x k`` that nothing could fuse with the loops over rows, and vectors of k lanes. With one statement for
each of the k they are loops over rows like all others. Worth it only where all arrays of that shape are
scratch, which then stays in registers; rows of k neighbours in memory, as an input or a gathered table has them,
are better read as they lie.
"""

from collections.abc import Iterator
from dataclasses import replace

from pymc_fastlogp.kernel.expressions import folded
from pymc_fastlogp.kernel.loops import (
    Check,
    Const,
    Expr,
    Index,
    Load,
    Loop,
    Program,
    Role,
    Statement,
    expressions,
    is_ordered,
    walk,
)
from pymc_fastlogp.kernel.passes.substitute import substitute

# Lengths of an axis that is unrolled, and of one that is worth a loop beside it.
LONGEST, LONG = 8, 64


def unroll(program: Program) -> Program:
    """Return the program with short axes unrolled."""
    return replace(program, steps=tuple(map(_unrolled, program.steps)))


def _unrolled(loop: Loop) -> Loop:
    axis = _short_axis(loop)
    if axis is None:
        return loop
    length = loop.domain[axis]
    assert isinstance(length, int)
    domain = (*loop.domain[:axis], *loop.domain[axis + 1 :])
    body = (at for s in loop.body for at in _at_each(s, axis, length))
    return replace(loop, domain=domain, body=tuple(body))


def _short_axis(loop: Loop) -> int | None:
    """Return the axis to unroll, None if there is none."""
    if len(loop.domain) != 2 or is_ordered(loop):
        return None
    for axis, (length, other) in enumerate(zip(loop.domain, reversed(loop.domain), strict=True)):
        is_short = isinstance(length, int) and length <= LONGEST
        is_beside_a_long_one = not isinstance(other, int) or other >= LONG
        if is_short and is_beside_a_long_one:
            return axis if _stays_in_registers(loop, axis) else None
    return None


def _stays_in_registers(loop: Loop, axis: int) -> bool:
    """Whether arrays over both axes are scratch that is indexed by the loop's own indices."""
    return all(
        role is Role.SCRATCH and all(isinstance(i, Const) or _is_affine(i) for i in index)
        for role, index in _elements(loop)
        if _depends(index, axis) and _depends(index, 1 - axis)
    )


def _elements(loop: Loop) -> Iterator[tuple[Role, tuple[Expr, ...]]]:
    for expr in expressions(loop):
        if isinstance(expr, Load):
            yield expr.buffer.role, expr.index
    for statement in loop.body:
        if not isinstance(statement, Check):
            yield statement.buffer.role, statement.index


def _is_affine(expr: Expr) -> bool:
    return not any(isinstance(part, Load) for part in walk([expr]))


def _depends(exprs: tuple[Expr, ...], axis: int) -> bool:
    return Index(axis) in walk(exprs)


def _at_each(statement: Statement, axis: int, length: int) -> Iterator[Statement]:
    """Yield a statement for each position along an axis."""
    for k in range(length):

        def at_k(expr: Expr, k: int = k) -> Expr | None:
            if isinstance(expr, Index):
                return (
                    Const(k, "int64")
                    if expr.axis == axis
                    else Index(expr.axis - (expr.axis > axis))
                )
            return folded(expr)

        yield substitute(statement, at_k)
