"""Cost of the arithmetic of a loop, in units of one vector addition."""

from pymc_fastlogp.analysis.scalar_facts import Cost, facts_of
from pymc_fastlogp.kernel.ir.expressions import Compute, Expr
from pymc_fastlogp.kernel.ir.loops import Loop
from pymc_fastlogp.kernel.ir.traversal import expressions
from pymc_fastlogp.kernel.scalars.loops import LoopResult
from pymc_fastlogp.kernel.scalars.quotient import Quotient

# Rounded results of ``python -m benchmarks.costs vecmath``.
ADDITIONS = {Cost.ARITHMETIC: 1, Cost.DIVISION: 8, Cost.FUNCTION: 30, Cost.SPECIAL: 30}
TRANSCENDENTAL = ADDITIONS[Cost.FUNCTION]
# A loop of 20 iterations with 50 operations each.
LOOP = 1000


def arithmetic_cost(loop: Loop) -> int:
    """Return the cost of all expressions of a loop."""
    return sum(map(cost_of, expressions(loop)))


def cost_of(expr: Expr) -> int:
    """Return the cost of one operation; index arithmetic costs nothing."""
    if not isinstance(expr, Compute) or expr.dtype == "int64":
        return 0
    if isinstance(expr.op, LoopResult):
        return LOOP
    return 1 if isinstance(expr.op, Quotient) else ADDITIONS[facts_of(expr.op).cost]
