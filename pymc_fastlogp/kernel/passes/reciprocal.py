"""Reciprocal sharing: replace several divisions by one divisor with one division and several multiplications.

.. code-block:: text

    loop n:                              loop n:
        y[i0] = x[i0] / s          ->        y[i0] = x[i0] * (1 / s)

A division takes about as long as ten multiplications, in vector code as well. A divisor that is constant along the
inner axis is inverted once before the loop. A divisor of several quotients is inverted once per vector. For
reciprocals that overflow see :mod:`pymc_fastlogp.kernel.scalars.quotient`.

A product by a reciprocal has a rounding error: ``49 * (1 / 49) < 1``. So a quotient that the same loop rounds to an integer or compares for
equality stays a division. Otherwise the result could be off by a whole number.
A quotient that another loop has stored may be a product by a reciprocal, as in PyTensor's code for Numba.
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

# Longest inner axis that stays as it is: a single vector gains nothing from a division outside the loop
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
    """Replace divisions by a common divisor with multiplications by its reciprocal."""
    return replace(program, steps=with_loops(program.steps, lambda loop: [_shared(loop)]))


def _shared(loop: Loop) -> Loop:
    if _is_short(loop):
        return loop
    uses, inner = Counter(map(_divisor, expressions(loop))), Index(len(loop.domain) - 1)
    exact = exact_expressions(loop)

    # The uses of a divisor are counted before substitution: a divisor may itself be a quotient, as in a triangular solve.
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
    """Return the expressions that are compared for equality, and those that are rounded to an integer with all of their operands."""
    computed = [expr for expr in expressions(loop) if isinstance(expr, Compute)]
    rounded = walk([x for expr in computed if _rounds(expr) for x in expr.args])
    compared = (x for expr in computed if isinstance(expr.op, EQUALITY) for x in expr.args)
    return {*rounded, *compared}


def _rounds(expr: Compute) -> bool:
    is_integer = np.dtype(expr.dtype).kind in "iu" and expr.args[0].dtype.startswith("float")
    return isinstance(expr.op, ROUNDING) or (isinstance(expr.op, ps.Cast) and is_integer)


def _divisor(expr: Expr) -> Expr | None:
    """Return the divisor of a float64 division, None for any other expression."""
    if not (isinstance(expr, Compute) and isinstance(expr.op, ps.TrueDiv)):
        return None
    is_double = all(part.dtype == "float64" for part in (expr, *expr.args))
    return expr.args[1] if is_double else None


def _is_short(loop: Loop) -> bool:
    return not loop.domain or (isinstance(loop.domain[-1], int) and loop.domain[-1] <= SHORT)
