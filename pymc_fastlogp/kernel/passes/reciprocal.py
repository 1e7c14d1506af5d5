"""Sharing reciprocals: where many numbers are divided by one, it is inverted once.

A division takes as long as about ten multiplications, and vectors are no remedy. A divisor that is the same along the
vectorized axis is inverted before the loop; one that divides several numbers, once for each vector. What is
done about reciprocals that overflow, see :mod:`pymc_fastlogp.kernel.scalars.quotient`.

By its reciprocal, 49 divided by 49 is less than 1. So what the same loop rounds or compares for equality is divided: the result would be off by a whole number.
A quotient that another loop has stored may be one by a reciprocal, as in PyTensor's code for Numba.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.expressions import Compute, Expr, Index
from pymc_fastlogp.kernel.ir.loops import Loop, Program
from pymc_fastlogp.kernel.ir.substitute import substitute_in_loop_by_origin
from pymc_fastlogp.kernel.ir.traversal import (
    depends_on,
    expressions,
    operands,
    walk,
    with_loops,
)
from pymc_fastlogp.kernel.scalars.quotient import quotient

# An inner axis that is not longer is one vector, for which one division is as good as another
# (``python -m benchmarks.limits``).
SHORT = 8

ROUNDING = (
    ps.Floor,
    ps.Ceil,
    ps.Trunc,
    ps.RoundHalfToEven,
    ps.RoundHalfAwayFromZero,
    ps.IntDiv,
    ps.Mod,
)
EQUALITY = (ps.EQ, ps.NEQ)


def share_reciprocals(program: Program) -> Program:
    """Return the program with fewer divisions in its loops."""
    return replace(program, steps=with_loops(program.steps, lambda loop: [_shared(loop)]))


def _shared(loop: Loop) -> Loop:
    if _is_short(loop):
        return loop
    uses, inner = Counter(map(_divisor, expressions(loop))), Index(len(loop.domain) - 1)
    exact = exact_expressions(loop)

    # A divisor may have been a quotient by another one, as in a triangular solve, and is counted as what it was.
    def multiplied(before: Expr, expr: Expr) -> Expr | None:
        divisor = _divisor(before)
        if divisor is None or before in exact:
            return None
        if uses[divisor] < 2 and depends_on([divisor], inner):
            return None
        x, y = operands(expr)
        reciprocal = Compute(ps.reciprocal, (y,), "float64")
        return Compute(quotient, (x, y, reciprocal), "float64")

    return substitute_in_loop_by_origin(loop, multiplied)


def exact_expressions(loop: Loop) -> set[Expr]:
    """Return what is rounded to an integer, and all that it is made of, and what is compared for equality."""
    computed = [expr for expr in expressions(loop) if isinstance(expr, Compute)]
    rounded = walk([x for expr in computed if _rounds(expr) for x in expr.args])
    compared = (x for expr in computed if isinstance(expr.op, EQUALITY) for x in expr.args)
    return {*rounded, *compared}


def _rounds(expr: Compute) -> bool:
    is_integer = np.dtype(expr.dtype).kind in "iu" and expr.args[0].dtype.startswith("float")
    return isinstance(expr.op, ROUNDING) or (isinstance(expr.op, ps.Cast) and is_integer)


def _divisor(expr: Expr) -> Expr | None:
    """Return the divisor of a float64 division, None of anything else."""
    if not (isinstance(expr, Compute) and isinstance(expr.op, ps.TrueDiv)):
        return None
    is_double = all(part.dtype == "float64" for part in (expr, *expr.args))
    return expr.args[1] if is_double else None


def _is_short(loop: Loop) -> bool:
    return not loop.domain or (isinstance(loop.domain[-1], int) and loop.domain[-1] <= SHORT)
