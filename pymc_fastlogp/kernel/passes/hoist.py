"""Loop-invariant code motion out of sequential loops: compute functions that depend only on sequences before the first step, by vector code.

.. code-block:: text

    repeat t n:                              loop n:
        g[t + 1] = g[t] * exp(x[t])  ->          %0 = load x[i0]
                                                 b[i0] = exp(%0)
                                             repeat t n:
                                                 g[t + 1] = g[t] * b[t]

A step of scalars runs in one lane. The gradient of such a step recomputes functions of stored values, which do
not depend on other steps. So functions and divisions of that kind are stored by a loop over all steps before the
sequential loop, and each step loads the results. Cheap arithmetic stays, as a store and a load would cost more.

A division by such a value becomes a multiplication by its reciprocal, as in :mod:`~pymc_fastlogp.kernel.passes.reciprocal`.

Steps of vectors are not changed. Loads at a data-dependent position are not moved either, because the step checks that the position is in bounds.
This is a part of the pass :mod:`~pymc_fastlogp.kernel.passes.step_motion`.
"""

from collections.abc import Iterator
from dataclasses import replace

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Expr, Index, Load, Role
from pymc_fastlogp.kernel.ir.loops import Loop, SequentialLoop, Step, Store
from pymc_fastlogp.kernel.ir.substitute import (
    substitute_in_element,
    substitute_in_loop,
    substitute_in_loop_by_origin,
)
from pymc_fastlogp.kernel.ir.traversal import expressions, loaded, operands, roots, walk, writes
from pymc_fastlogp.kernel.passes.reciprocal import exact_expressions
from pymc_fastlogp.kernel.passes.sink import is_straight, step_number_as_index
from pymc_fastlogp.kernel.scalars.cost import cost_of
from pymc_fastlogp.kernel.scalars.quotient import quotient

# Least cost of an operation that is worth a store and a load: that of a division (``python -m benchmarks.limits``).
COSTLY = 8


def hoist(repeat: SequentialLoop, stored: list[Buffer]) -> Iterator[Step]:
    """Yield the loops that precompute invariant expressions, and then the sequential loop; append their buffers to ``stored``."""
    repeat = replace(repeat, steps=tuple(_with_reciprocals(step, repeat) for step in repeat.steps))
    found = dict.fromkeys(
        expr
        for step in repeat.steps
        if is_straight(step)
        for expr in _invariant_expressions(step, repeat)
    )
    loads_of: dict[Expr, Expr] = {}
    # Operands first: an expression is looked up after its operands have been replaced by loads.
    for expr in (part for part in walk(list(found)) if part in found):
        buffer = Buffer(f"h{len(stored)}", expr.dtype, (repeat.length,), Role.SCRATCH)
        stored.append(buffer)
        yield _loop_of(expr, buffer, repeat)
        [key] = substitute_in_element((expr,), loads_of.get)
        loads_of[key] = Load(buffer, (Load(repeat.counter, ()),))
    yield replace(repeat, steps=tuple(_with_loads(step, loads_of) for step in repeat.steps))


def _with_reciprocals(step: Step, repeat: SequentialLoop) -> Step:
    if not is_straight(step):
        return step
    written, exact = writes(repeat), exact_expressions(step)

    def multiplied(before: Expr, expr: Expr) -> Expr | None:
        if not isinstance(expr, Compute) or not isinstance(expr.op, ps.TrueDiv) or before in exact:
            return None
        x, y = expr.args
        if not all(part.dtype == "float64" for part in (expr, x, y)):
            return None
        if not _is_invariant(y, written, repeat.counter) or not loaded([x]) & written:
            return None
        return Compute(quotient, (x, y, Compute(ps.reciprocal, (y,), "float64")), "float64")

    return substitute_in_loop_by_origin(step, multiplied)


def _invariant_expressions(loop: Loop, repeat: SequentialLoop) -> Iterator[Expr]:
    """Yield the largest costly expressions of a loop that do not depend on earlier steps."""
    written = writes(repeat)
    exprs = list(expressions(loop))
    free = {expr for expr in exprs if _is_free_of_state(expr, written, repeat.counter)}
    needed = [operand for expr in exprs if expr not in free for operand in operands(expr)]
    needed += [root for statement in loop.body for root in roots(statement)]
    for expr in dict.fromkeys(needed):
        if expr in free and repeat.counter in loaded([expr]) and is_costly(expr):
            yield expr


def _is_invariant(expr: Expr, written: frozenset[Buffer], counter: Buffer) -> bool:
    return counter in loaded([expr]) and _is_free_of_state(expr, written, counter)


def _is_free_of_state(expr: Expr, written: frozenset[Buffer], counter: Buffer) -> bool:
    """Return whether an expression reads no buffer that a step writes, and all indices depend only on the step number."""
    loads = [part for part in walk([expr]) if isinstance(part, Load) and part.buffer is not counter]
    if any(load.buffer in written for load in loads):
        return False
    return not any(loaded(list(load.index)) - {counter} for load in loads)


def is_costly(expr: Expr) -> bool:
    """Return whether an expression contains a function or a division."""
    return any(isinstance(part, Compute) and cost_of(part) >= COSTLY for part in walk([expr]))


def _loop_of(expr: Expr, buffer: Buffer, repeat: SequentialLoop) -> Loop:
    """Return the loop that stores an expression for every step."""
    # Substitution takes place even for a single step, whose number is an index, too.
    [value] = substitute_in_element((expr,), step_number_as_index(repeat))
    return Loop((repeat.length,), (Store(buffer, (Index(0),), value),))


def _with_loads(step: Step, loads_of: dict[Expr, Expr]) -> Step:
    return substitute_in_loop(step, loads_of.get) if isinstance(step, Loop) else step
