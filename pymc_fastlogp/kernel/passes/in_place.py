"""Writing in place: what is only copied elsewhere is written there at once.

A Join copies its parts, and an output is a copy of what was computed. Where a scratch buffer is read by
nothing but such a copy, all writes of it go to the target instead, and the copy is dropped. What else writes
the target between the first of these writes and the copy must write other elements, in known, disjoint intervals:
else the order of the two would change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from pytensor.scalar.basic import Cast

from pymc_fastlogp.kernel.calls import Call
from pymc_fastlogp.kernel.expressions import domain_of, flat_index, product_of_sizes, reads_directly
from pymc_fastlogp.kernel.loops import (
    Buffer,
    Check,
    Compute,
    Const,
    Expr,
    Index,
    Load,
    Loop,
    Program,
    Role,
    Statement,
    Store,
    as_expr,
    expressions,
    is_call,
    loaded,
    operands,
    reads,
)
from pymc_fastlogp.kernel.passes.substitute import substitute


@dataclass(frozen=True)
class Copy:
    """A statement that copies the whole of a scratch buffer.

    Attributes
    ----------
    source : Buffer
        What is copied.
    store : Store
        The statement.
    loop : Loop
        Its loop.
    """

    source: Buffer
    store: Store
    loop: Loop


def write_in_place(program: Program) -> Program:
    """Return the program without copies that can be spared."""
    while copies := _spare_copies(program):
        # One for each target and source, so that a chain is followed step by step.
        program = _without(program, copies[0])
    return program


def _spare_copies(program: Program) -> list[Copy]:
    found = [
        copy
        for loop in program.steps
        for statement in loop.body
        if (copy := _as_copy(loop, statement)) and _is_spare(program, copy)
    ]
    return found


def _as_copy(loop: Loop, statement: Statement) -> Copy | None:
    if not isinstance(statement, Store) or statement.in_order:
        return None
    value = statement.value
    if not isinstance(value, Load) or value.buffer.role is not Role.SCRATCH:
        return None
    if domain_of(value.buffer.shape) != (loop.domain, value.index):
        return None
    return Copy(value.buffer, statement, loop)


def _is_spare(program: Program, copy: Copy) -> bool:
    source, target = copy.source, copy.store.buffer
    if source is target or _number_of_readers(program, source) != 1:
        return False
    if not all(map(_is_known, copy.store.index)):
        return False
    position = program.steps.index(copy.loop)
    writers = [loop for loop in program.steps if _writes(loop, source)]
    between = program.steps[program.steps.index(writers[0]) : position + 1]
    if any(target in reads(loop) for loop in between):
        return False
    if any(map(is_call, writers)) and not _is_whole(copy):
        return False
    if copy.loop.when is not None and any(loop.when is not copy.loop.when for loop in writers):
        return False
    return _is_apart(between, copy)


def _is_known(index: Expr) -> bool:
    """Whether an index needs nothing that is computed, or checked to be in bounds, only after the first of the writes."""
    return reads_directly(index) and all(
        buffer.role in (Role.INPUT, Role.CONSTANT) for buffer in loaded([index])
    )


def _is_whole(copy: Copy) -> bool:
    """Whether the target has the same elements in the same order, so that a library can write them there."""
    assert isinstance(copy.store.value, Load)
    source, target = copy.source.shape, copy.store.buffer.shape
    is_in_order = flat_index(source, copy.store.value.index) is flat_index(target, copy.store.index)
    return is_in_order and as_expr(product_of_sizes(source)) is as_expr(product_of_sizes(target))


def _number_of_readers(program: Program, buffer: Buffer) -> int:
    """Return how many statements read a buffer, counting a condition of a loop as one."""
    parts = [
        part
        for loop in program.steps
        for part in (*(replace(loop, body=(s,)) for s in loop.body), replace(loop, body=()))
    ]
    conditions = [part for part in parts if not part.body and buffer in reads(part)]
    statements = [part for part in parts if part.body and buffer in reads(replace(part, when=None))]
    loads = {e for part in statements for e in expressions(part) if _is_load(e, buffer)}
    return len(conditions) + max(len(statements), len(loads))


def _is_load(expr: Expr, buffer: Buffer) -> bool:
    return isinstance(expr, Load) and expr.buffer is buffer


def _writes(loop: Loop, buffer: Buffer) -> bool:
    return any(not isinstance(s, Check) and s.buffer is buffer for s in loop.body)


def _is_apart(loops: Sequence[Loop], copy: Copy) -> bool:
    """Whether nothing else in the loops writes the elements of the target that the copy writes."""
    target = copy.store.buffer
    others = [
        (loop, statement)
        for loop in loops
        for statement in loop.body
        if not isinstance(statement, Check)
        and statement.buffer is target
        and statement is not copy.store
    ]
    if not others:
        return True
    own = _interval(copy.loop, copy.store)
    intervals = [_interval(loop, statement) for loop, statement in others]
    return own is not None and all(
        other is not None and (other[1] <= own[0] or own[1] <= other[0]) for other in intervals
    )


def _interval(loop: Loop, statement: Statement) -> tuple[int, int] | None:
    """Return the first and the last element, plus one, that a loop writes of a vector."""
    if isinstance(statement, Check | Call) or len(statement.index) != 1:
        return None
    [index] = statement.index
    if isinstance(index, Const):
        return int(index.value), int(index.value) + 1
    if (data := _constant(index)) is not None and data.size:
        return int(data.min()), int(data.max()) + 1
    start = _offset(index)
    if start is None or len(loop.domain) != 1 or not isinstance(loop.domain[0], int):
        return None
    return start, start + loop.domain[0]


def _constant(index: Expr) -> np.ndarray | None:
    """Return the data of a constant that the index is taken from."""
    while isinstance(index, Compute) and isinstance(index.op, Cast):
        [index] = index.args
    if not (isinstance(index, Load) and index.buffer.role is Role.CONSTANT):
        return None
    return np.frombuffer(index.buffer.data, index.buffer.dtype)


def _offset(index: Expr) -> int | None:
    """Return the number that is added to the index of the loop."""
    if isinstance(index, Index):
        return 0
    if isinstance(index, Compute) and str(index.op) == "add":
        first, second = operands(index)
        if isinstance(first, Index) and isinstance(second, Const):
            return int(second.value)
    return None


def _without(program: Program, copy: Copy) -> Program:
    steps = []
    for loop in program.steps:
        body = tuple(_redirected(s, copy) for s in loop.body if s is not copy.store)
        if body:
            steps.append(replace(loop, body=body))
    scratch = tuple(buffer for buffer in program.scratch if buffer is not copy.source)
    return replace(program, steps=tuple(steps), scratch=scratch)


def _redirected(statement: Statement, copy: Copy) -> Statement:
    if isinstance(statement, Check) or statement.buffer is not copy.source:
        return statement
    moved = replace(statement, buffer=copy.store.buffer, index=_moved(statement.index, copy))
    if isinstance(moved, Call) and moved.failed:
        return replace(moved, failed=_moved(moved.failed, copy))
    return moved


def _moved(index: tuple[Expr, ...], copy: Copy) -> tuple[Expr, ...]:
    """Return where the copy takes an element of the source."""
    assert isinstance(copy.store.value, Load)
    places = dict(zip(copy.store.value.index, index, strict=True))
    [moved] = substitute(
        (copy.store,), lambda expr: places.get(expr) if isinstance(expr, Index) else None
    )
    assert isinstance(moved, Store)
    return moved.index
