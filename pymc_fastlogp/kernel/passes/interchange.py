"""The order of the axes of a loop: innermost, where vectors run, the axis that costs least.

The cost of a vector along an axis counts its memory accesses and arithmetic, and is divided by the lanes that
the axis fills. The weights are rough; what they must get right is that neighbours in memory are
neighbours in a vector.
"""

from dataclasses import replace

from pymc_fastlogp.kernel.ir.expressions import Compute, Const, Expr, Index, Load
from pymc_fastlogp.kernel.ir.loops import Check, Loop, Program
from pymc_fastlogp.kernel.ir.substitute import substitute
from pymc_fastlogp.kernel.ir.traversal import expressions, is_ordered, operands, walk

LANES = 16
CONTIGUOUS, UNIFORM, APART = 1.0, 0.5, 10.0
APART_WRITTEN = 40.0


def interchange_axes(program: Program) -> Program:
    """Return the program with the best axis of each loop innermost."""
    return replace(program, steps=tuple(map(_interchange, program.steps)))


def _interchange(loop: Loop) -> Loop:
    axes = range(len(loop.domain))
    if len(axes) < 2 or is_ordered(loop):
        return loop
    # The last of equals stays innermost.
    best = min(reversed(axes), key=lambda axis: _cost(loop, axis))
    order = (*(axis for axis in axes if axis != best), best)
    return _permuted(loop, order)


def _permuted(loop: Loop, order: tuple[int, ...]) -> Loop:
    def renamed(expr: Expr) -> Expr | None:
        return Index(order.index(expr.axis)) if isinstance(expr, Index) else None

    domain = tuple(loop.domain[axis] for axis in order)
    body = substitute(loop.body, renamed)
    return replace(loop, domain=domain, body=body)


def _cost(loop: Loop, axis: int) -> float:
    """Return the cost per element of running vectors along an axis."""
    length = loop.domain[axis]
    lanes = min(length, LANES) if isinstance(length, int) else LANES
    loads = [e.index for e in expressions(loop) if isinstance(e, Load)]
    writes = [s.index for s in loop.body if not isinstance(s, Check)]
    arithmetic = sum(isinstance(e, Compute) for e in expressions(loop))
    read = sum(_access_cost(index, axis, APART) for index in loads)
    written = sum(_access_cost(index, axis, APART_WRITTEN) for index in writes)
    return (read + written + arithmetic) / lanes


def _access_cost(index: tuple[Expr, ...], axis: int, apart: float) -> float:
    along = [i for i in index if _depends(i, axis)]
    if not along:
        return UNIFORM
    return CONTIGUOUS if along == [index[-1]] and _is_step_of_one(index[-1], axis) else apart


def _depends(expr: Expr, axis: int) -> bool:
    return Index(axis) in walk([expr])


def _is_step_of_one(expr: Expr, axis: int) -> bool:
    """Whether an expression is the index plus something constant along the axis."""
    if expr is Index(axis):
        return True
    if not (isinstance(expr, Compute) and str(expr.op) == "add"):
        return False
    first, second = operands(expr)
    return isinstance(second, Const) and _is_step_of_one(first, axis)
