"""What the arithmetic of a loop costs, roughly, in additions of a vector."""

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.expressions import Compute, Expr
from pymc_fastlogp.kernel.ir.loops import Loop
from pymc_fastlogp.kernel.ir.traversal import expressions
from pymc_fastlogp.kernel.scalars.quotient import Quotient

SIMPLE = (
    *(ps.Add, ps.Sub, ps.Mul, ps.Neg, ps.Abs, ps.Sqr, ps.Switch, ps.Cast, ps.Identity),
    *(ps.AND, ps.OR, ps.XOR, ps.Invert, ps.LT, ps.LE, ps.GT, ps.GE, ps.EQ, ps.NEQ),
    *(ps.ScalarMaximum, ps.ScalarMinimum, ps.IsNan, ps.IsInf, ps.Clip, ps.Sign, Quotient),
)
DIVIDING = (ps.TrueDiv, ps.Reciprocal, ps.Sqrt)
DIVISION, TRANSCENDENTAL = 8, 30


def arithmetic_cost(loop: Loop) -> int:
    """Return the cost of all expressions of a loop."""
    return sum(map(_cost, expressions(loop)))


def _cost(expr: Expr) -> int:
    if not isinstance(expr, Compute) or expr.dtype == "int64":
        return 0
    if isinstance(expr.op, SIMPLE):
        return 1
    return DIVISION if isinstance(expr.op, DIVIDING) else TRANSCENDENTAL
