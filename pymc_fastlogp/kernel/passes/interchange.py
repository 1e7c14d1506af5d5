"""Loop interchange: make the cheapest axis the innermost, along which vectors run.

.. code-block:: text

    loop 50 1000:                        loop 1000 50:
        y += exp(x[i1, i0])        ->        y += exp(x[i0, i1])

The cost of a vector along an axis counts memory accesses and arithmetic, and is divided by the number of lanes that
the axis fills. The weights are rough. Their purpose is that neighbors in memory are neighbors in a vector.
"""

from dataclasses import replace

from pymc_fastlogp.kernel.ir.affine import coefficient
from pymc_fastlogp.kernel.ir.expressions import Compute, Expr, Index, Load
from pymc_fastlogp.kernel.ir.loops import Loop, Program, Write
from pymc_fastlogp.kernel.ir.substitute import substitute_in_loop
from pymc_fastlogp.kernel.ir.traversal import (
    depends_on,
    expressions,
    is_ordered,
    loads,
    updates,
    with_loops,
)

# The largest number of lanes of any CPU, so that the order does not depend on the CPU.
LANES = 16
# Cost of a vector of neighbors in memory, of one element for all lanes, and of one distant element per lane (``python -m benchmarks.limits``).
CONTIGUOUS, UNIFORM, DISTANT = 1.0, 0.5, 10.0
DISTANT_WRITE = 40.0


def interchange_axes(program: Program) -> Program:
    """Make the cheapest axis of each loop the innermost."""
    return replace(program, steps=with_loops(program.steps, lambda loop: [_interchange(loop)]))


def _interchange(loop: Loop) -> Loop:
    axes = range(len(loop.domain))
    if len(axes) < 2 or is_ordered(loop):
        return loop
    # Ties go to the last axis.
    best = min(reversed(axes), key=lambda axis: _cost(loop, axis))
    order = (*(axis for axis in axes if axis != best), best)
    return _permuted(loop, order)


def _permuted(loop: Loop, order: tuple[int, ...]) -> Loop:
    def renamed(expr: Expr) -> Expr | None:
        return Index(order.index(expr.axis)) if isinstance(expr, Index) else None

    domain = tuple(loop.domain[axis] for axis in order)
    return replace(substitute_in_loop(loop, renamed), domain=domain)


def _cost(loop: Loop, axis: int) -> float:
    """Return the cost per element of vectors along an axis."""
    length = loop.domain[axis]
    lanes = min(length, LANES) if isinstance(length, int) else LANES
    arithmetic = sum(isinstance(e, Compute) for e in expressions(loop))
    read = sum(_access_cost(load, axis, DISTANT) for load in loads(loop))
    written = sum(_access_cost(update, axis, DISTANT_WRITE) for update in updates(loop))
    return (read + written + arithmetic) / lanes


def _access_cost(access: Load | Write, axis: int, distant: float) -> float:
    # An axis of length one, such as the second axis of a column, does not separate neighbors in memory.
    index = [i for i, n in zip(access.index, access.buffer.shape, strict=True) if n != 1]
    along = [i for i in index if depends_on([i], Index(axis))]
    if not along:
        return UNIFORM
    is_step_of_one = along == [index[-1]] and coefficient(index[-1], Index(axis)) == 1
    return CONTIGUOUS if is_step_of_one else distant
