"""Writing in place: what is only copied elsewhere is written there at once.

A Join copies its parts, and an output is a copy of what was computed. Where a scratch buffer is read by
nothing but such a copy, all writes of it go to the target instead, and the copy is dropped. What else writes
the target between the first of these writes and the copy must write other elements, in known, disjoint intervals:
else the order of the two would change.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from pytensor.scalar.basic import Cast

from pymc_fastlogp.kernel.ir.affine import affine
from pymc_fastlogp.kernel.ir.arithmetic import domain_of, flat_index, product_of_sizes
from pymc_fastlogp.kernel.ir.expressions import (
    Buffer,
    Compute,
    Const,
    Expr,
    Index,
    Load,
    Role,
    as_expr,
)
from pymc_fastlogp.kernel.ir.loops import Call, Check, Loop, Program, Statement, Step, Store, Write
from pymc_fastlogp.kernel.ir.substitute import substitute_in_element
from pymc_fastlogp.kernel.ir.traversal import (
    is_call,
    loaded,
    loops_in,
    reads,
    reads_directly,
    roots,
    updates,
    with_loops,
    writes,
)


@dataclass(frozen=True)
class Copy:
    """A statement of a loop that copies the whole of a scratch buffer, the source."""

    source: Buffer
    store: Store
    loop: Loop


def write_in_place(program: Program) -> Program:
    """Return the program without copies that can be spared."""
    # Of scratch that is left, the readers stay as many.
    n_readers = _numbers_of_readers(program)
    # One after the other, so that a chain is followed step by step.
    while (copy := _spare_copy(program, n_readers)) is not None:
        program = _without(program, copy)
    return program


def _spare_copy(program: Program, n_readers: Counter[Buffer]) -> Copy | None:
    loops = (step for step in program.steps if isinstance(step, Loop))
    copies = (_as_copy(loop, statement) for loop in loops for statement in loop.body)
    alone = (copy for copy in copies if copy and _is_only_reader(copy, n_readers))
    return next((copy for copy in alone if _is_spare(program, copy)), None)


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
    if source is target:
        return False
    if not all(map(_is_known, copy.store.index)):
        return False
    position = program.steps.index(copy.loop)
    writers = [step for step in program.steps if source in writes(step)]
    if not writers or not all(isinstance(step, Loop) for step in writers):
        return False
    between = program.steps[program.steps.index(writers[0]) : position + 1]
    if any(target in reads(step) for step in between):
        return False
    if any(map(is_call, loops_in(writers))) and not _is_whole(copy):
        return False
    return _is_apart(between, copy)


def _is_known(index: Expr) -> bool:
    """Return whether an index needs nothing that is computed, or checked to be in bounds, only after the first of the writes."""
    return reads_directly(index) and all(
        buffer.role in (Role.INPUT, Role.CONSTANT) for buffer in loaded([index])
    )


def _is_whole(copy: Copy) -> bool:
    """Return whether the target has the same elements in the same order, so that a library can write them there."""
    assert isinstance(copy.store.value, Load)
    source, target = copy.source.shape, copy.store.buffer.shape
    is_in_order = flat_index(source, copy.store.value.index) is flat_index(target, copy.store.index)
    return is_in_order and as_expr(product_of_sizes(source)) is as_expr(product_of_sizes(target))


def _numbers_of_readers(program: Program) -> Counter[Buffer]:
    """Return how many statements read each buffer."""
    statements = (statement for loop in loops_in(program.steps) for statement in loop.body)
    return Counter(buffer for statement in statements for buffer in loaded(roots(statement)))


def _is_only_reader(copy: Copy, n_readers: Counter[Buffer]) -> bool:
    """Return whether the source is read by nothing but the copy, and by that as what is copied alone."""
    return n_readers[copy.source] == 1 and copy.source not in loaded(copy.store.index)


def _is_apart(steps: Sequence[Step], copy: Copy) -> bool:
    """Return whether nothing else in the steps writes the elements of the target that the copy writes."""
    others = [
        (loop, update)
        for loop in loops_in(steps)
        for update in updates(loop)
        if update.buffer is copy.store.buffer and update is not copy.store
    ]
    if not others:
        return True
    own = _interval(copy.loop, copy.store)
    intervals = [_interval(loop, statement) for loop, statement in others]
    return own is not None and all(
        other is not None and (other[1] <= own[0] or own[1] <= other[0]) for other in intervals
    )


def _interval(loop: Loop, update: Write) -> tuple[int, int] | None:
    """Return the first and the last element, plus one, that a loop writes of a vector."""
    if isinstance(update, Call) or len(update.index) != 1:
        return None
    [index] = update.index
    if (data := _constant(index)) is not None and data.size:
        return int(data.min()), int(data.max()) + 1
    return _affine_interval(loop, index)


def _affine_interval(loop: Loop, index: Expr) -> tuple[int, int] | None:
    """Return the least and the largest value, plus one, of an affine index in a loop of static lengths."""
    axes = [Index(axis) for axis in range(len(loop.domain))]
    found = affine(index, axes)
    if found is None or not isinstance(found.rest, Const):
        return None
    first = last = int(found.rest.value)
    for axis, coefficient in found.coefficients.items():
        length = loop.domain[axis.axis]
        if not isinstance(length, int):
            return None
        reach = coefficient * (length - 1)
        first, last = first + min(reach, 0), last + max(reach, 0)
    return first, last + 1


def _constant(index: Expr) -> np.ndarray | None:
    """Return the data of a constant that the index is taken from."""
    while isinstance(index, Compute) and isinstance(index.op, Cast):
        [index] = index.args
    if not (isinstance(index, Load) and index.buffer.role is Role.CONSTANT):
        return None
    return np.frombuffer(index.buffer.data, index.buffer.dtype)


def _without(program: Program, copy: Copy) -> Program:
    def without(loop: Loop) -> list[Loop]:
        if copy.source not in reads(loop) | writes(loop):
            return [loop]
        body = tuple(_redirected(s, copy) for s in loop.body if s is not copy.store)
        return [replace(loop, body=body)] if body else []

    steps = with_loops(program.steps, without)
    scratch = tuple(buffer for buffer in program.scratch if buffer is not copy.source)
    return replace(program, steps=steps, scratch=scratch)


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
    pairs = zip(copy.store.value.index, index, strict=True)
    places: dict[Expr, Expr] = {i: place for i, place in pairs if isinstance(i, Index)}
    return substitute_in_element(copy.store.index, places.get)
