"""Loop unswitching: decide a Switch with a uniform condition before the loop.

.. code-block:: text

    loop n:                                           loop n if a > 0:
        y += switch(a > 0, f(x[i0]), g(x[i0]))   ->       y += f(x[i0])
                                                      loop n if not a > 0:
                                                          y += g(x[i0])

A vector computes both branches. If this costs much, as with the two limits of a negative binomial, the loop
is duplicated: one copy for each value of the condition.
"""

from dataclasses import replace

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.arithmetic import cast, truth
from pymc_fastlogp.kernel.ir.expressions import Expr
from pymc_fastlogp.kernel.ir.loops import Loop, Program
from pymc_fastlogp.kernel.ir.traversal import is_uniform, with_loops
from pymc_fastlogp.kernel.passes.switches import decided, switches
from pymc_fastlogp.kernel.scalars.cost import arithmetic_cost

# Least saving of each of the two loops: a fraction of the cost, and about one transcendental function
# (``python -m benchmarks.limits``).
WORTH, LEAST = 0.1, 20
# Largest number of conditions per loop; each doubles the code.
DEPTH = 2


def unswitch(program: Program) -> Program:
    """Duplicate loops for both values of a uniform condition, if that saves enough."""
    steps = with_loops(program.steps, lambda loop: _unswitched(loop, DEPTH))
    return replace(program, steps=steps)


def _unswitched(loop: Loop, depth: int) -> list[Loop]:
    condition = _best_condition(loop) if depth and loop.domain else None
    if condition is None:
        return [loop]
    holds = cast(condition, "bool")  # a condition may be a number
    return [
        new
        for value, when in ((True, holds), (False, truth(ps.invert, holds)))
        for new in _unswitched(_decided(loop, condition, value, when), depth - 1)
    ]


def _best_condition(loop: Loop) -> Expr | None:
    """Return the condition that saves most, None if no condition saves enough."""
    cost = arithmetic_cost(loop)
    costs = {
        condition: max(
            arithmetic_cost(decided(loop, (condition,), value)) for value in (True, False)
        )
        for condition in _uniform_conditions(loop)
    }
    best = min(costs, key=lambda condition: costs[condition], default=None)
    worth_it = best is not None and cost - costs[best] >= max(WORTH * cost, LEAST)
    return best if worth_it else None


def _uniform_conditions(loop: Loop) -> list[Expr]:
    conditions = dict.fromkeys(switch.args[0] for switch in switches(loop))
    return list(filter(is_uniform, conditions))


def _decided(loop: Loop, condition: Expr, value: bool, when: Expr) -> Loop:
    """Return the loop specialized for one value of a condition, which runs only if the condition has this value."""
    both = when if loop.when is None else truth(ps.and_, loop.when, when)
    return replace(decided(loop, (condition,), value), when=both)
