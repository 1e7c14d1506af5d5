"""Cost of a loop: of its arithmetic, in units of one vector addition, and its approximate time."""

from pymc_fastlogp.analysis.scalar_facts import Cost, facts_of
from pymc_fastlogp.kernel.ir.expressions import Compute, Expr
from pymc_fastlogp.kernel.ir.loops import Loop
from pymc_fastlogp.kernel.ir.traversal import expressions, is_uniform, loads, updates
from pymc_fastlogp.kernel.scalars.loops import LoopResult
from pymc_fastlogp.kernel.scalars.quotient import Quotient

# Rounded results of ``python -m benchmarks.costs vecmath``.
ADDITIONS = {Cost.ARITHMETIC: 1, Cost.DIVISION: 8, Cost.FUNCTION: 30, Cost.SPECIAL: 30}
TRANSCENDENTAL = ADDITIONS[Cost.FUNCTION]
# Approximate nanoseconds of one addition in a lane of a vector, of one load, and of one scatter.
ADDITION_TIME, LOAD_TIME, SCATTER_TIME = 0.04, 0.1, 0.7
# A loop of 20 iterations with 50 operations each.
LOOP = 1000


def arithmetic_cost(loop: Loop) -> int:
    """Return the cost of all expressions of a loop."""
    return sum(map(cost_of, expressions(loop)))


def nanoseconds(loop: Loop) -> float:
    """Return the approximate time of one iteration of a loop."""
    n_loads = sum(not is_uniform(load) for load in loads(loop))
    n_scatters = sum(not all(map(is_uniform, each.index)) for each in updates(loop))
    return ADDITION_TIME * arithmetic_cost(loop) + LOAD_TIME * n_loads + SCATTER_TIME * n_scatters


def cost_of(expr: Expr) -> int:
    """Return the cost of one operation; index arithmetic costs nothing."""
    if not isinstance(expr, Compute) or expr.dtype == "int64":
        return 0
    if isinstance(expr.op, LoopResult):
        return LOOP
    return 1 if isinstance(expr.op, Quotient) else ADDITIONS[facts_of(expr.op).cost]
