"""Move work that no other step needs behind the last step of a sequential loop, where it is vectorized.

A result of scalars that are kept, such as the term of the log density of each observation in a filter, is stored by a loop
over all steps behind the repetition:

.. code-block:: text

    repeat t n:                              repeat t n:
        s[t + 1] = f(s[t], x[t])                 s[t + 1] = f(s[t], x[t])
        y[t] = log(s[t])                 ->  loop n:
                                                 %0 = load s[i0]
                                                 y[i0] = log(%0)

An element of a state has its last value where a step reads it if a step before wrote it, or none, and each step writes another one.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeGuard

from pymc_fastlogp.kernel.ir.arithmetic import offset_from
from pymc_fastlogp.kernel.ir.expressions import Buffer, Expr, Index, Load
from pymc_fastlogp.kernel.ir.loops import Loop, SequentialLoop, Statement, Step, Store
from pymc_fastlogp.kernel.ir.substitute import Replacement, substitute
from pymc_fastlogp.kernel.ir.traversal import loaded, loops_in, reads, updates, walk, writes


def with_results_behind(repeat: SequentialLoop) -> Iterator[Step]:
    """Yield what is repeated, and then the loops that store what no step reads."""
    kept: list[Step] = []
    behind: list[Statement] = []
    for step in repeat.steps:
        if not is_straight(step):
            kept.append(step)
            continue
        sunk = [statement for statement in step.body if _can_wait(statement, repeat)]
        behind += sunk
        if rest := tuple(s for s in step.body if s not in sunk):
            kept.append(replace(step, body=rest))
    if kept:
        yield replace(repeat, steps=tuple(kept))
    for statement in behind:
        yield Loop((repeat.length,), substitute((statement,), at_each_step(repeat)))


def is_straight(step: Step) -> TypeGuard[Loop]:
    """Return whether a step is straight-line code."""
    return isinstance(step, Loop) and not step.domain


def at_each_step(repeat: SequentialLoop) -> Replacement:
    """Return the replacement of the number of the step by the index of a loop."""

    def number(expr: Expr) -> Expr | None:
        is_counter = isinstance(expr, Load) and expr.buffer is repeat.counter
        return Index(0) if is_counter else None

    return number


def _can_wait(statement: Statement, repeat: SequentialLoop) -> bool:
    """Return whether a statement stores what no step reads, of nothing that a later step changes."""
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
    ) and all(_is_plain(load, repeat) for load in _loads_of(statement))


def _loads_of(statement: Store) -> list[Load]:
    parts = walk([*statement.index, statement.value])
    return [part for part in parts if isinstance(part, Load)]


def _is_plain(load: Load, repeat: SequentialLoop) -> bool:
    """Return whether a position is known by the number of the step, without a check."""
    return not loaded(list(load.index)) - {repeat.counter}


def _is_final(load: Load, repeat: SequentialLoop) -> bool:
    """Return whether an element that is read has its last value."""
    written = _written_at(load.buffer, repeat)
    read = offset_from(_number(repeat), load.index[0]) if load.index else None
    return written is not None and read is not None and all(read < offset for offset in written)


def _written_at(buffer: Buffer, repeat: SequentialLoop) -> set[int] | None:
    """Return how far behind the number of a step the places are that it writes, None where that is not all there is to it."""
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
