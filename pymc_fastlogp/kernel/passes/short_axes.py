"""Choice of the short axes to unroll, for the pass :mod:`~pymc_fastlogp.kernel.passes.unroll`.

A short axis is unrolled if the loop has a single long axis. It stays a loop if its rows of ``k`` neighbors

- belong to an output,
- belong to a gathered table, unless the rows are too short to fill a vector,
- fill whole vectors on a CPU with 16 registers, and an entry takes several functions. The straight-line code of such a row has more values than
  registers, and more instructions than the CPU keeps decoded,
- share a loop with rows that stay.

The third case does not apply if a loop reads part of a row, as with the cut points of an ordered response: the lanes would not be neighbors.
Nor does it apply if a loop of another form reads the rows, such as a loop over two long axes, which is faster with columns.
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

# Largest length of an unrolled axis, and smallest length of a long axis (``python -m benchmarks.limits``).
LONGEST, LONG = 16, 64

# Largest length of gathered rows that are unrolled: such rows do not fill a vector of 8 lanes. An ordered logit with cut
# points by group gets 3.5 times as fast. Rows of 8 and 10 get slower (``python -m benchmarks.limits``).
LONGEST_GATHERED = 6

# Least cost of an entry, in additions, for which rows that fill vectors stay loops. The number of lanes identifies AVX, which has 16 registers.
# AVX-512 and NEON have 32 (``python -m benchmarks.limits``).
DEAR, AVX_LANES = 44, 4


def rows_to_keep(program: Program) -> frozenset[Buffer]:
    """Return the arrays whose rows are not unrolled: outputs, tables, expensive rows, and all arrays that share a loop with one of these."""
    loops = tuple(loops_in(program.steps))
    tables = frozenset(buffer for buffer in program.outputs if buffer.role is Role.OUTPUT)
    if native_lanes() == AVX_LANES:
        tables |= _expensive(loops)
    axes = [(loop, axis, long) for loop in loops for axis, long in short_axes(loop)]
    arrays = [frozenset(buffer for buffer, _ in arrays_along(*each)) for each in axes]
    stay = (not is_worth_unrolling(*each, frozenset()) for each in axes)
    return closure_over_groups(tables.union(*compress(arrays, stay)), arrays)


def closure_over_groups(
    found: frozenset[Buffer], groups: Iterable[frozenset[Buffer]]
) -> frozenset[Buffer]:
    """Return the transitive closure of a set of arrays over groups: a group that contains one array of the set joins it."""
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


def _expensive(loops: Sequence[Loop]) -> frozenset[Buffer]:
    """Return the arrays of expensive rows that fill vectors and that every loop traverses whole."""
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
    """Arrays over a short axis and a long axis that share loops.

    Attributes
    ----------
    buffers : frozenset of Buffer
        The arrays.
    cost : int
        Arithmetic cost of an entry.
    are_whole : bool
        Whether all rows fill vectors and are traversed whole.
    """

    buffers: frozenset[Buffer]
    cost: int
    are_whole: bool


def _rows(loop: Loop, axis: int, long: int) -> _Rows:
    """Return the arrays over both axes of a loop."""
    over, length = list(arrays_along(loop, axis, long)), loop.domain[axis]
    whole = (_is_whole(buffer, index, axis, length) for buffer, index in over)
    are_whole = _fills_vectors(length) and _has_two_axes(loop, axis, long) and all(whole)
    return _Rows(frozenset(buffer for buffer, _ in over), arithmetic_cost(loop), are_whole)


def _merged(every: Iterable[_Rows]) -> set[_Rows]:
    """Merge the entries that share an array."""
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
    """Return whether a row of this length is a whole number of native vectors, and at least as long as the vectors of one iteration."""
    return isinstance(length, int) and length >= default_width() and length % native_lanes() == 0


def _has_two_axes(loop: Loop, axis: int, long: int) -> bool:
    """Return whether all axes except the short and the long one have length one."""
    others = set(range(len(loop.domain))) - {axis, long}
    return all(loop.domain[other] == 1 for other in others)


def _is_whole(buffer: Buffer, index: tuple[Expr, ...], axis: int, length: Size) -> bool:
    """Return whether an access traverses a whole axis of an array in order."""
    along = [k for k, i in enumerate(index) if depends_on([i], Index(axis))]
    return len(along) == 1 and index[along[0]] is Index(axis) and buffer.shape[along[0]] == length


def short_axes(loop: Loop) -> list[tuple[int, int]]:
    """Return all axes except the long one, each paired with the long axis; none unless there is a single long axis."""
    long = [axis for axis, length in enumerate(loop.domain) if _is_long(length)]
    if len(long) != 1:
        return []
    return [(axis, long[0]) for axis in range(len(loop.domain)) if axis not in long]


def _is_long(length: Size) -> bool:
    return not isinstance(length, int) or length >= LONG


def is_worth_unrolling(loop: Loop, axis: int, long: int, tables: frozenset[Buffer]) -> bool:
    """Return whether an axis is short enough to unroll, and no array over both axes is in ``tables`` or is gathered by longer rows."""
    length = loop.domain[axis]
    if not isinstance(length, int) or length > LONGEST:
        return False
    return all(
        buffer not in tables
        and (length <= LONGEST_GATHERED or all(_is_free_of_data(i, axis) for i in index))
        for buffer, index in arrays_along(loop, axis, long)
    )


def arrays_along(loop: Loop, axis: int, long: int) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    """Yield the elements that depend on both axes."""
    for buffer, index in elements(loop):
        if depends_on(index, Index(axis)) and depends_on(index, Index(long)):
            yield buffer, index


def _is_free_of_data(expr: Expr, axis: int) -> bool:
    """Return whether an index loads no data after the axis is unrolled."""
    others = (part for part in walk([expr]) if isinstance(part, Load))
    return all(
        load.buffer.role is Role.CONSTANT
        and all(part is Index(axis) for part in walk(load.index) if isinstance(part, Index))
        for load in others
    )
