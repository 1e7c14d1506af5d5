"""Unroll short axes into straight-line code, or keep them as loops.

Rows of k neighbors in an output are better left as they lie, and so are those of a gathered table, unless they are so short that
they fill no vector, and so is all that a loop over such rows shares with others. The same holds for rows that fill whole vectors, if
an entry takes several functions: straight-line code of a row has more values than 16 registers hold, and more instructions than a CPU keeps
decoded. Not where something reads a part of a row, as the cut points of an ordered response do: its lanes would not be neighbors; nor where
a loop of another form reads them, such as one over two long axes, which is faster with columns.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import NamedTuple

from pymc_fastlogp.kernel.ir.expressions import Buffer, Expr, Index, Load, Role, Size
from pymc_fastlogp.kernel.ir.loops import Loop, Program
from pymc_fastlogp.kernel.ir.traversal import depends_on, elements, loops_in, walk
from pymc_fastlogp.kernel.native.target import default_width, native_lanes
from pymc_fastlogp.kernel.scalars.cost import arithmetic_cost

# Lengths of an axis that is unrolled, and of one that is worth a loop beside it (``python -m benchmarks.limits``).
LONGEST, LONG = 16, 64

# Length of gathered rows that are taken apart, at most: a vector of 8 lanes is not filled by them, and an ordered logit whose cut
# points differ by group is 3.5 times as fast. Rows of 8 and 10 are slower apart (``python -m benchmarks.limits``).
LONGEST_GATHERED = 6

# Cost of an entry, in additions, from which rows that fill vectors stay loops, and the lanes of the vectors of AVX: it has 16 registers,
# AVX-512 and NEON have 32 (``python -m benchmarks.limits``).
DEAR, AVX_LANES = 44, 4


def rows_that_stay(program: Program) -> frozenset[Buffer]:
    """Return the arrays whose rows stay as they lie: outputs, dear ones, and what shares a loop with a table."""
    loops = tuple(loops_in(program.steps))
    tables = frozenset(buffer for buffer in program.outputs if buffer.role is Role.OUTPUT)
    if native_lanes() == AVX_LANES:
        tables |= _dear(loops)
    axes = [(loop, axis, long) for loop in loops for axis, long in short_axes(loop)]
    arrays = [frozenset(buffer for buffer, _ in arrays_over(*each)) for each in axes]
    stay = (not pays(*each, frozenset()) for each in axes)
    return with_those_that_share(tables.union(*compress(arrays, stay)), arrays)


def with_those_that_share(
    found: frozenset[Buffer], groups: Iterable[frozenset[Buffer]]
) -> frozenset[Buffer]:
    """Return arrays with all groups that have one of them, or of those that come with them."""
    having = defaultdict[Buffer, list[frozenset[Buffer]]](list)
    for group in groups:
        for buffer in group:
            having[buffer].append(group)
    every, pending = set(found), list(found)
    while pending:
        for group in having.pop(pending.pop(), ()):
            pending += group - every
            every |= group
    return frozenset(every)


def _dear(loops: Sequence[Loop]) -> frozenset[Buffer]:
    """Return the arrays of rows that fill vectors, that all loops go along whole, and that together cost much by entry."""
    axes = [(loop, short_axes(loop)) for loop in loops]
    apart = {buffer for loop, found in axes if not found for buffer, _ in elements(loop)}
    rows = (_rows(loop, axis, long) for loop, found in axes for axis, long in found)
    return frozenset[Buffer]().union(
        *(
            group.buffers
            for group in _merged(rows)
            if group.are_whole and group.cost >= DEAR and apart.isdisjoint(group.buffers)
        )
    )


class _Rows(NamedTuple):
    """Arrays over a short axis and a long one that loops share."""

    buffers: frozenset[Buffer]
    cost: int  # of an entry
    are_whole: bool


def _rows(loop: Loop, axis: int, long: int) -> _Rows:
    """Return the arrays over both axes of a loop."""
    over, length = list(arrays_over(loop, axis, long)), loop.domain[axis]
    whole = (_is_whole(buffer, index, axis, length) for buffer, index in over)
    are_whole = _fills_vectors(length) and _is_alone(loop, axis, long) and all(whole)
    return _Rows(frozenset(buffer for buffer, _ in over), arithmetic_cost(loop), are_whole)


def _merged(every: Iterable[_Rows]) -> set[_Rows]:
    """Return what loops share arrays with each other as one."""
    groups = dict[Buffer, _Rows]()
    for rows in every:
        joined = [rows, *{groups[buffer] for buffer in rows.buffers if buffer in groups}]
        one = _Rows(
            frozenset[Buffer]().union(*(group.buffers for group in joined)),
            sum(group.cost for group in joined),
            all(group.are_whole for group in joined),
        )
        groups |= dict.fromkeys(one.buffers, one)
    return set(groups.values())


def _fills_vectors(length: Size) -> bool:
    """Return whether a row of so many elements fills at least the vectors that a loop works on at a time, and leaves nothing over."""
    return isinstance(length, int) and length >= default_width() and length % native_lanes() == 0


def _is_alone(loop: Loop, axis: int, long: int) -> bool:
    """Return whether no third axis has to become straight-line code."""
    others = set(range(len(loop.domain))) - {axis, long}
    return all(loop.domain[other] == 1 for other in others)


def _is_whole(buffer: Buffer, index: tuple[Expr, ...], axis: int, length: Size) -> bool:
    """Return whether an access goes along a whole axis of an array."""
    along = [k for k, i in enumerate(index) if depends_on([i], Index(axis))]
    return len(along) == 1 and index[along[0]] is Index(axis) and buffer.shape[along[0]] == length


def short_axes(loop: Loop) -> list[tuple[int, int]]:
    """Return the axes beside a single long one, each with that one."""
    long = [axis for axis, length in enumerate(loop.domain) if _is_long(length)]
    if len(long) != 1:
        return []
    return [(axis, long[0]) for axis in range(len(loop.domain)) if axis not in long]


def _is_long(length: Size) -> bool:
    return not isinstance(length, int) or length >= LONG


def pays(loop: Loop, axis: int, long: int, tables: frozenset[Buffer]) -> bool:
    """Return whether the axis is short, and no array over it and the long one is a table of longer rows."""
    length = loop.domain[axis]
    if not isinstance(length, int) or length > LONGEST:
        return False
    return all(
        buffer not in tables
        and (length <= LONGEST_GATHERED or all(_is_free_of_data(i, axis) for i in index))
        for buffer, index in arrays_over(loop, axis, long)
    )


def arrays_over(loop: Loop, axis: int, long: int) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    """Yield the elements of arrays over both axes."""
    for buffer, index in elements(loop):
        if depends_on(index, Index(axis)) and depends_on(index, Index(long)):
            yield buffer, index


def _is_free_of_data(expr: Expr, axis: int) -> bool:
    """Return whether an index is made of those of the loop alone, once the axis is unrolled."""
    others = (part for part in walk([expr]) if isinstance(part, Load))
    return all(
        load.buffer.role is Role.CONSTANT
        and all(part is Index(axis) for part in walk(load.index) if isinstance(part, Index))
        for load in others
    )
