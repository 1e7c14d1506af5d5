"""What a step computes of sequences alone is computed before the first step, by vectors.

A step of scalars runs one lane. Its gradient computes again what the steps did, from the values that were kept: that depends on no
other step. Functions and divisions of that kind are stored by a loop over all steps before the
repetition, and a step loads them:

.. code-block:: text

    repeat t n:                         loop n:
        g[t + 1] = g[t] * exp(x[t])  ->     %0 = load x[i0]
                                            b[i0] = exp(%0)
                                        repeat t n:
                                            g[t + 1] = g[t] * b[t]

The steps of vectors stay as they are. So does what a step reads at a position that is data: that it is in bounds is checked in
the step.
"""

from collections.abc import Iterator
from dataclasses import replace

from pymc_fastlogp.kernel.ir.arithmetic import domain_of
from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Expr, Load, Role
from pymc_fastlogp.kernel.ir.loops import Loop, Program, Repeat, Step, Store
from pymc_fastlogp.kernel.ir.substitute import substitute_in_element, substitute_in_loop
from pymc_fastlogp.kernel.ir.traversal import expressions, loaded, operands, walk, writes
from pymc_fastlogp.kernel.passes.dead_code import drop_dead_stores
from pymc_fastlogp.kernel.passes.fuse import fuse_loops
from pymc_fastlogp.kernel.scalars.cost import cost_of

# Of an operation that is worth a store and a load: that of a division.
COSTLY = 8
# Steps of which there have to be more for vectors to gain.
FEW = 8


def hoist_from_steps(program: Program) -> Program:
    """Return the program with costly work on sequences before what is repeated."""
    hoisted: list[Buffer] = []
    steps = [new for step in program.steps for new in _hoisted(step, hoisted)]
    if not hoisted:
        return program
    scratch = (*program.scratch, *hoisted)
    fused = fuse_loops(replace(program, steps=tuple(steps), scratch=scratch))
    return drop_dead_stores(fused)


def _hoisted(step: Step, hoisted: list[Buffer]) -> Iterator[Step]:
    """Yield a step, after the loops that do some of its work; add the buffers that these store."""
    if isinstance(step, Loop) or (isinstance(step.length, int) and step.length <= FEW):
        yield step
        return
    found = dict.fromkeys(
        expr
        for loop in step.steps
        if isinstance(loop, Loop) and not loop.domain and not loop.when
        for expr in _of_sequences(loop, step)
    )
    places: dict[Expr, Expr] = {}
    # Operands first: what contains one is looked up with that in its place.
    for expr in (part for part in walk(list(found)) if part in found):
        buffer = Buffer(f"h{len(hoisted)}", expr.dtype, (step.length,), Role.SCRATCH)
        hoisted.append(buffer)
        yield _loop_of(expr, buffer, step)
        [key] = substitute_in_element((expr,), places.get)
        places[key] = Load(buffer, (Load(step.counter, ()),))
    yield replace(step, steps=tuple(_with(inner, places) for inner in step.steps))


def _of_sequences(loop: Loop, repeat: Repeat) -> Iterator[Expr]:
    """Yield the largest costly expressions of a loop that are the same whatever the steps before gave."""
    written = writes(repeat)
    free = {expr for expr in expressions(loop) if _is_free(expr, written, repeat.counter)}
    needed = [operand for expr in expressions(loop) if expr not in free for operand in operands(expr)]
    needed += [s.value for s in loop.body if isinstance(s, Store)]
    for expr in dict.fromkeys(needed):
        if expr in free and repeat.counter in loaded([expr]) and _is_costly(expr):
            yield expr


def _is_free(expr: Expr, written: set[Buffer], counter: Buffer) -> bool:
    """Whether an expression reads nothing that a step writes, and all of it at positions known by the number of the step."""
    loads = [part for part in walk([expr]) if isinstance(part, Load) and part.buffer is not counter]
    if any(load.buffer in written for load in loads):
        return False
    return not any(loaded(list(load.index)) - {counter} for load in loads)


def _is_costly(expr: Expr) -> bool:
    return any(isinstance(part, Compute) and cost_of(part) >= COSTLY for part in walk([expr]))


def _loop_of(expr: Expr, buffer: Buffer, repeat: Repeat) -> Loop:
    """Return the loop that stores an expression for each step."""
    domain, index = domain_of(buffer.shape)
    number = index[0]

    def at_index(part: Expr) -> Expr | None:
        return number if isinstance(part, Load) and part.buffer is repeat.counter else None

    [value] = substitute_in_element((expr,), at_index)
    return Loop(domain, (Store(buffer, index, value),))


def _with(step: Step, places: dict[Expr, Expr]) -> Step:
    return substitute_in_loop(step, places.get) if isinstance(step, Loop) else step
