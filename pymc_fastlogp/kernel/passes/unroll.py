"""Short axes become straight-line code in the loop over the long one.

The cut points of an ordered regression, the classes of a categorical one, or the effects of a group that a
Cholesky factor correlates, make loops over ``rows x k`` that nothing could fuse with the loops over rows,
and vectors of k lanes. With one statement for each of the k they are loops over rows like all others, and
scratch of that shape stays in registers. Arrays that are not scratch are then read k elements apart
(:mod:`pymc_fastlogp.kernel.emit.scope`). Rows of k neighbours in an output are better left as they lie, and so are those of a gathered
table, unless they are so short that they fill no vector, and so is all that a loop over such rows shares with others.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import batched

from pymc_fastlogp.kernel.ir.arithmetic import fold_constants, int64
from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Expr, Index, Load, Role, Size
from pymc_fastlogp.kernel.ir.loops import Accumulate, Loop, Program, Statement
from pymc_fastlogp.kernel.ir.substitute import substitute
from pymc_fastlogp.kernel.ir.traversal import (
    depends_on,
    is_ordered,
    loads,
    loops_in,
    updates,
    walk,
    with_loops,
)

# Lengths of an axis that is unrolled, and of one that is worth a loop beside it (``python -m benchmarks.limits``).
LONGEST, LONG = 16, 64

# Length of gathered rows that are taken apart, at most: a vector of 8 lanes is not filled by them, and an ordered logit whose cut
# points differ by group is 3.5 times as fast. Rows of 8 and 10 are slower apart (``python -m benchmarks.limits``).
LONGEST_GATHERED = 6


def unroll(program: Program) -> Program:
    """Return the program with short axes unrolled."""
    tables = _tables(program)
    steps = with_loops(program.steps, lambda loop: [_unrolled(loop, tables)])
    return replace(program, steps=steps)


def _tables(program: Program) -> frozenset[Buffer]:
    """Return the arrays whose rows stay as they lie: outputs, and what shares a loop with a table."""
    tables = frozenset(buffer for buffer in program.outputs if buffer.role is Role.OUTPUT)
    while True:
        found = tables.union(*(_kept_by(loop, tables) for loop in loops_in(program.steps)))
        if found == tables:
            return tables
        tables = found


def _kept_by(loop: Loop, tables: frozenset[Buffer]) -> Iterator[Buffer]:
    """Yield the arrays over a short axis of a loop that is not unrolled."""
    for axis, long in _short_axes(loop):
        if not _pays(loop, axis, long, tables):
            yield from (buffer for buffer, _ in _over(loop, axis, long))


def _unrolled(loop: Loop, tables: frozenset[Buffer]) -> Loop:
    axis = _axis_to_unroll(loop, tables)
    if axis is None:
        return loop
    length = loop.domain[axis]
    assert isinstance(length, int)
    domain = (*loop.domain[:axis], *loop.domain[axis + 1 :])
    body = (at for s in loop.body for at in _together(s, _at_each(s, axis, length), axis))
    return _unrolled(replace(loop, domain=domain, body=tuple(body)), tables)


def _axis_to_unroll(loop: Loop, tables: frozenset[Buffer]) -> int | None:
    """Return the axis to unroll, None if there is none."""
    if is_ordered(loop):
        return None
    paying = (axis for axis, long in _short_axes(loop) if _pays(loop, axis, long, tables))
    return next(paying, None)


def _short_axes(loop: Loop) -> list[tuple[int, int]]:
    """Return the axes beside a single long one, each with that one."""
    long = [axis for axis, length in enumerate(loop.domain) if _is_long(length)]
    if len(long) != 1:
        return []
    return [(axis, long[0]) for axis in range(len(loop.domain)) if axis not in long]


def _is_long(length: Size) -> bool:
    return not isinstance(length, int) or length >= LONG


def _pays(loop: Loop, axis: int, long: int, tables: frozenset[Buffer]) -> bool:
    """Whether the axis is short, and no array over it and the long one is a table of longer rows."""
    length = loop.domain[axis]
    if not isinstance(length, int) or length > LONGEST:
        return False
    return all(
        buffer not in tables
        and (length <= LONGEST_GATHERED or all(_is_free_of_data(i, axis) for i in index))
        for buffer, index in _over(loop, axis, long)
    )


def _over(loop: Loop, axis: int, long: int) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    """Yield the elements of arrays over both axes."""
    for buffer, index in _elements(loop):
        if depends_on(index, Index(axis)) and depends_on(index, Index(long)):
            yield buffer, index


def _elements(loop: Loop) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    """Yield what a loop reads and writes."""
    for access in (*loads(loop), *updates(loop)):
        yield access.buffer, access.index


def _is_free_of_data(expr: Expr, axis: int) -> bool:
    """Whether an index is made of those of the loop alone, once the axis is unrolled."""
    others = (part for part in walk([expr]) if isinstance(part, Load))
    return all(
        load.buffer.role is Role.CONSTANT
        and all(part is Index(axis) for part in walk(load.index) if isinstance(part, Index))
        for load in others
    )


def _together(statement: Statement, copies: list[Statement], axis: int) -> list[Statement]:
    """Return the copies of a statement, as one where all accumulate in the same element: each would have partial results of its own."""
    if not isinstance(statement, Accumulate) or depends_on(statement.index, Index(axis)):
        return copies
    adding = [copy for copy in copies if isinstance(copy, Accumulate)]
    values = [copy.value for copy in adding]
    while len(values) > 1:
        pairs = batched(values, 2)
        values = [Compute(statement.op, x, x[0].dtype) if len(x) > 1 else x[0] for x in pairs]
    return [replace(copy, value=value) for copy, value in zip(adding, values, strict=False)]


def _at_each(statement: Statement, axis: int, length: int) -> list[Statement]:
    """Return a statement for each position along an axis."""
    copies = list[Statement]()
    for k in range(length):

        def at_k(expr: Expr, k: int = k) -> Expr | None:
            if isinstance(expr, Index):
                return int64(k) if expr.axis == axis else Index(expr.axis - (expr.axis > axis))
            return fold_constants(expr)

        copies += substitute((statement,), at_k)
    return copies
