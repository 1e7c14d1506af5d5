"""Copy elimination: write a buffer directly at the destination to which it is copied.

.. code-block:: text

    loop n:                              loop n:
        b[i0] = exp(x[i0])         ->        y[i0 + 5] = exp(x[i0])
    loop n:
        y[i0 + 5] = b[i0]

A Join copies its parts, and an output is often a copy of a result. If a scratch buffer is read by
such a copy alone, all of its writes go to the target instead, and the copy is dropped.

Other writes of the target between the first redirected write and the copy must be to other elements, in known, disjoint intervals.
Otherwise the order of writes to an element could change.
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
    """A statement of a loop that copies a whole scratch buffer, the source."""

    source: Buffer
    store: Store
    loop: Loop


def write_in_place(program: Program) -> Program:
    """Remove copies whose source can be written at its destination."""
    # Removing a copy does not change the number of readers of the remaining scratch buffers.
    n_readers = _numbers_of_readers(program)
    # One copy at a time, so that chains of copies are resolved.
    while (copy := _removable_copy(program, n_readers)) is not None:
        program = _without(program, copy)
    return program


def _removable_copy(program: Program, n_readers: Counter[Buffer]) -> Copy | None:
    loops = (step for step in program.steps if isinstance(step, Loop))
    copies = (_as_copy(loop, statement) for loop in loops for statement in loop.body)
    alone = (copy for copy in copies if copy and _is_only_reader(copy, n_readers))
    return next((copy for copy in alone if _is_removable(program, copy)), None)


def _as_copy(loop: Loop, statement: Statement) -> Copy | None:
    if not isinstance(statement, Store) or statement.in_order:
        return None
    value = statement.value
    if not isinstance(value, Load) or value.buffer.role is not Role.SCRATCH:
        return None
    if domain_of(value.buffer.shape) != (loop.domain, value.index):
        return None
    return Copy(value.buffer, statement, loop)


def _is_removable(program: Program, copy: Copy) -> bool:
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
    return _has_distinct_writes(between, copy)


def _is_known(index: Expr) -> bool:
    """Return whether an index reads only inputs and constants, without a bounds check, so that it is known before the first write."""
    return reads_directly(index) and all(
        buffer.role in (Role.INPUT, Role.CONSTANT) for buffer in loaded([index])
    )


def _is_whole(copy: Copy) -> bool:
    """Return whether the target has the same elements in the same order, so that a library call can write them."""
    assert isinstance(copy.store.value, Load)
    source, target = copy.source.shape, copy.store.buffer.shape
    is_in_order = flat_index(source, copy.store.value.index) is flat_index(target, copy.store.index)
    return is_in_order and as_expr(product_of_sizes(source)) is as_expr(product_of_sizes(target))


def _numbers_of_readers(program: Program) -> Counter[Buffer]:
    """Return the number of statements that read each buffer."""
    statements = (statement for loop in loops_in(program.steps) for statement in loop.body)
    return Counter(buffer for statement in statements for buffer in loaded(roots(statement)))


def _is_only_reader(copy: Copy, n_readers: Counter[Buffer]) -> bool:
    """Return whether the copied value is the only use of the source."""
    return n_readers[copy.source] == 1 and copy.source not in loaded(copy.store.index)


def _has_distinct_writes(steps: Sequence[Step], copy: Copy) -> bool:
    """Return whether no other statement of the steps writes an element that the copy writes."""
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
    """Return the interval of elements of a vector that a statement writes, None if unknown."""
    if isinstance(update, Call) or len(update.index) != 1:
        return None
    [index] = update.index
    if (data := _constant(index)) is not None and data.size:
        return int(data.min()), int(data.max()) + 1
    return _affine_interval(loop, index)


def _affine_interval(loop: Loop, index: Expr) -> tuple[int, int] | None:
    """Return the half-open interval of an affine index in a loop of static lengths, None if unknown."""
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
    """Return the data of the constant from which an index is loaded, None for other indices."""
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
    moved = replace(statement, buffer=copy.store.buffer, index=_target_index(statement.index, copy))
    if isinstance(moved, Call) and moved.failed:
        return replace(moved, failed=_target_index(moved.failed, copy))
    return moved


def _target_index(index: tuple[Expr, ...], copy: Copy) -> tuple[Expr, ...]:
    """Return the index in the target of an element of the source."""
    assert isinstance(copy.store.value, Load)
    pairs = zip(copy.store.value.index, index, strict=True)
    places: dict[Expr, Expr] = {i: place for i, place in pairs if isinstance(i, Index)}
    return substitute_in_element(copy.store.index, places.get)
