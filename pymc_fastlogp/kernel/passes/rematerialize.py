"""Rematerialization: compute cheap sequences where vector code reads them, instead of storing them.

.. code-block:: text

    loop n m:                            repeat t n:
        b[i0, i1] = -x[i0, i1]     ->        loop m:
    repeat t n:                                  s[t + 1, i0] = s[t, i0] * -x[t, i0]
        loop m:
            s[t + 1, i0] = s[t, i0] * b[t, i0]

PyTensor moves as many operations as possible out of the inner graph of a Scan: a sign, or the difference of two sequences, becomes a sequence. If
a step has a hundred series, it is vector code itself. The stored sequence exceeds the caches, and its stores and loads take
longer than a few operations. The same holds for loops over all steps. Steps of scalars are the opposite case
(:mod:`~pymc_fastlogp.kernel.passes.hoist`). This is a part of the pass :mod:`~pymc_fastlogp.kernel.passes.step_motion`.
"""

from collections.abc import Sequence
from dataclasses import replace

from pymc_fastlogp.kernel.ir.arithmetic import domain_of
from pymc_fastlogp.kernel.ir.expressions import Buffer, Expr, Index, Load, Role
from pymc_fastlogp.kernel.ir.loops import Loop, Program, SequentialLoop, Step, Store
from pymc_fastlogp.kernel.ir.substitute import substitute_in_element, substitute_in_loop
from pymc_fastlogp.kernel.ir.traversal import (
    is_call,
    is_uniform,
    loads,
    loops_in,
    reads,
    updates,
    walk,
    with_loops,
    writes,
)
from pymc_fastlogp.kernel.passes.hoist import is_costly

# Largest number of loads that replace one load (``python -m benchmarks.limits``).
MOST_LOADS = 2


def rematerialize_sequences(program: Program) -> Program:
    """Compute cheap sequences in the vector code that reads them."""
    if not any(isinstance(step, SequentialLoop) for step in program.steps):
        return program
    values: dict[Buffer, Store] = {}
    for position, step in enumerate(program.steps):
        if isinstance(step, Loop):
            new = [s for s in step.body if isinstance(s, Store) and _is_cheap(s, step)]
            values |= {s.buffer: s for s in new if _can_be_inlined(s, program.steps, position)}
    return replace(program, steps=with_loops(program.steps, lambda loop: [_inlined(loop, values)]))


def _is_cheap(store: Store, loop: Loop) -> bool:
    """Return whether a statement stores a whole scratch buffer, element by element, of values as cheap to compute as to load."""
    if store.buffer.role is not Role.SCRATCH or not loop.domain:
        return False
    if domain_of(store.buffer.shape) != (loop.domain, store.index) or is_costly(store.value):
        return False
    read = [part for part in walk([store.value]) if isinstance(part, Load)]
    return sum(not is_uniform(load) for load in read) <= MOST_LOADS


def _can_be_inlined(store: Store, steps: Sequence[Step], position: int) -> bool:
    """Return whether only vector code reads the stored buffer, and no later step changes an operand."""
    others = [s for loop in loops_in(steps) for s in updates(loop) if s is not store]
    if any(s.buffer is store.buffer for s in others):
        return False
    read = {part.buffer for part in walk([store.value]) if isinstance(part, Load)}
    if any(writes(step) & read for step in steps[position:]):
        return False
    readers = [loop for loop in loops_in(steps[position:]) if store.buffer in reads(loop)]
    return bool(readers) and all(map(_can_compute, readers))


def _can_compute(loop: Loop) -> bool:
    """Return whether a loop is vector code; a library call needs its operands in memory."""
    return bool(loop.domain) and not is_call(loop)


def _inlined(loop: Loop, values: dict[Buffer, Store]) -> Loop:
    """Return a loop that computes elements of sequences instead of loading them."""
    if not any(load.buffer in values for load in loads(loop)):
        return loop

    def computed(expr: Expr) -> Expr | None:
        if not isinstance(expr, Load) or expr.buffer not in values:
            return None
        store = values[expr.buffer]
        positions: dict[Expr, Expr] = {
            i: at for i, at in zip(store.index, expr.index) if isinstance(i, Index)
        }
        [value] = substitute_in_element((store.value,), positions.get)
        return value

    return substitute_in_loop(loop, computed)
