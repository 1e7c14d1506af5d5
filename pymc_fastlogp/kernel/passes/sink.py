"""Code sinking out of sequential loops: compute results that no step reads after the last step, by vector code.

.. code-block:: text

    repeat t n:                              repeat t n:
        s[t + 1] = f(s[t], x[t])                 s[t + 1] = f(s[t], x[t])
        y[t] = log(s[t])                 ->  loop n:
                                                 %0 = load s[i0]
                                                 y[i0] = log(%0)

A step of scalars runs in one lane. Its results, such as the log density of each observation in a filter, depend on stored states. So
a loop over all steps can compute them after the sequential loop.

A statement can sink only if the elements of states that it reads have their final values. That holds if an element is written
by an earlier step or by none, and different steps write different elements.
This is a part of the pass :mod:`~pymc_fastlogp.kernel.passes.step_motion`.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeGuard

from pymc_fastlogp.kernel.ir.arithmetic import offset_from
from pymc_fastlogp.kernel.ir.expressions import Buffer, Expr, Index, Load
from pymc_fastlogp.kernel.ir.loops import Loop, SequentialLoop, Statement, Step, Store
from pymc_fastlogp.kernel.ir.substitute import Replacement, substitute
from pymc_fastlogp.kernel.ir.traversal import loaded, loops_in, reads, updates, walk, writes


def sink(repeat: SequentialLoop) -> Iterator[Step]:
    """Yield the sequential loop, and then the loops that store results that no step reads."""
    kept: list[Step] = []
    behind: list[Statement] = []
    for step in repeat.steps:
        if not is_straight(step):
            kept.append(step)
            continue
        sunk = [statement for statement in step.body if _can_sink(statement, repeat)]
        behind += sunk
        if rest := tuple(s for s in step.body if s not in sunk):
            kept.append(replace(step, body=rest))
    if kept:
        yield replace(repeat, steps=tuple(kept))
    for statement in behind:
        yield Loop((repeat.length,), substitute((statement,), step_number_as_index(repeat)))


def is_straight(step: Step) -> TypeGuard[Loop]:
    """Return whether a step is straight-line code: a loop without axes."""
    return isinstance(step, Loop) and not step.domain


def step_number_as_index(repeat: SequentialLoop) -> Replacement:
    """Return the replacement of the step number by the index of a loop over all steps."""

    def number(expr: Expr) -> Expr | None:
        is_counter = isinstance(expr, Load) and expr.buffer is repeat.counter
        return Index(0) if is_counter else None

    return number


def _can_sink(statement: Statement, repeat: SequentialLoop) -> bool:
    """Return whether no step reads the stored result, and no later step changes an operand."""
    if not isinstance(statement, Store) or statement.in_order:
        return False
    places = _written_at(statement.buffer, repeat)
    if statement.buffer in reads(repeat) or places is None or len(places) > 1:
        return False
    changing = writes(repeat)
    return all(
        load.buffer not in changing or _is_final(load, repeat)
        for load in _loads_of(statement)
        if load.buffer is not repeat.counter
    ) and all(_is_indexed_by_step(load, repeat) for load in _loads_of(statement))


def _loads_of(statement: Store) -> list[Load]:
    parts = walk([*statement.index, statement.value])
    return [part for part in parts if isinstance(part, Load)]


def _is_indexed_by_step(load: Load, repeat: SequentialLoop) -> bool:
    """Return whether an index depends only on the step number, so that it needs no bounds check."""
    return not loaded(list(load.index)) - {repeat.counter}


def _is_final(load: Load, repeat: SequentialLoop) -> bool:
    """Return whether a loaded element has its final value: every write of the buffer is at a later position."""
    written = _written_at(load.buffer, repeat)
    read = offset_from(_number(repeat), load.index[0]) if load.index else None
    return written is not None and read is not None and all(read < offset for offset in written)


def _written_at(buffer: Buffer, repeat: SequentialLoop) -> set[int] | None:
    """Return the offsets from the step number at which a buffer is written, None if some position is not such an offset."""
    offsets = set()
    for loop in loops_in(repeat.steps):
        for update in updates(loop):
            if update.buffer is not buffer:
                continue
            offset = offset_from(_number(repeat), update.index[0]) if update.index else None
            if offset is None or not isinstance(update, Store):
                return None
            offsets.add(offset)
    return offsets


def _number(repeat: SequentialLoop) -> Expr:
    return Load(repeat.counter, ())
