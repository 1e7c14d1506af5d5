"""Loop fusion: merge loops over the same domain as far as the order of reads and writes allows.

.. code-block:: text

    loop n:                              loop n:
        b[i0] = exp(x[i0])         ->        b[i0] = exp(x[i0])
    loop n:                                  y += exp(x[i0]) * z[i0]
        y += b[i0] * z[i0]

One pass over the rows replaces several, and a value that one statement stores for another stays in a register
(:mod:`~pymc_fastlogp.kernel.passes.fusion_groups`).

Each loop joins the first group of its domain that comes after all groups on which the loop depends. A new group is inserted at the earliest possible
position. So scalars are ready before the long loops that use them, and those loops can be merged.

A short loop does not join a group if this would separate two long loops: one that computes an operand of the group, and one that reads the
result of the short loop. For example, if the logarithms of two weights
joined the conjunction of two checks, the loop that checks all rows could no longer be fused with the loop that weighs the rows.

A sequential loop is a group by itself. Its own steps are fused in the same way.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pymc_fastlogp.kernel.ir.loops import (
    Loop,
    Program,
    SequentialLoop,
    Step,
)
from pymc_fastlogp.kernel.ir.traversal import (
    reads,
    writes,
)
from pymc_fastlogp.kernel.passes.fusion_groups import (
    Accesses,
    Domain,
    Group,
    SequentialGroup,
    are_independent,
    can_fuse,
    is_barrier,
)
from pymc_fastlogp.kernel.passes.fusion_order import Order, length_of


def fuse_loops(program: Program) -> Program:
    """Merge loops as far as the order of reads and writes allows."""
    return replace(program, steps=_fused(program.steps))


def _fused(steps: Sequence[Step]) -> tuple[Step, ...]:
    order = Order(steps)
    for step in steps:
        if isinstance(step, SequentialLoop):
            alone = SequentialGroup(replace(step, steps=_fused(step.steps)))
            order.insert(order.earliest(step), alone)
        elif 0 not in step.domain:
            order.add(_place(order, step), step)
    return tuple(_merge_distant([group.as_step() for group in order.groups]))


def _place(order: Order, loop: Loop) -> Group:
    """Return the group that a loop joins, which may be a new group."""
    earliest = order.earliest(loop)
    for position, group in _candidates(order, loop, earliest):
        if group.is_barrier or not group.fits(loop):
            continue
        if not _would_separate(order, position, loop):
            return group
    group = Group(loop.domain)
    order.insert(earliest, group)
    return group


def _candidates(order: Order, loop: Loop, earliest: int) -> Iterable[tuple[int, Group]]:
    """Return the candidate groups for a loop, with their positions."""
    if is_barrier(loop):  # nothing moves across a check
        return []
    if loop.domain:
        return order.of_domain(loop.domain, earliest)
    # A scalar is cheap to compute, and should not be delayed by later groups.
    here = order.groups[earliest : earliest + 1]
    return [(earliest, group) for group in here if isinstance(group, Group)]


def _would_separate(order: Order, position: int, loop: Loop) -> bool:
    """Return whether merging a loop into a group would separate two longer loops of the same domain.

    The first longer loop computes an operand of only one of the two. The second longer loop reads a result of the other one. After the merge,
    the second has to wait for the first, so they cannot be fused. A loop that depends on the group always joins: it cannot be placed
    before the group.
    """
    group = order.groups[position]
    if not group.writes.isdisjoint(reads(loop) | writes(loop)):
        return False
    length = length_of(loop.domain)
    reading_loop, reading_group = order.readers_of(writes(loop)), order.readers_of_group(group)
    if max(reading_loop.longest, reading_group.longest) <= length:
        return False
    of_group, of_loop = order.needed(group.reads, position), order.needed(reads(loop), position)
    waits = (of_group - of_loop, reading_loop), (of_loop - of_group, reading_group)
    return any(
        isinstance(other := order.groups[k], Group)
        and other.domain in reading.domains
        and length_of(other.domain) > length
        for needed, reading in waits
        for k in needed
    )


def _merge_distant(steps: list[Step]) -> list[Step]:
    """Merge each loop with later loops of the same domain, the longest domains first.

    The steps between two merged loops move before or behind both, if their order of reads and writes allows that.
    """
    counts = Counter(step.domain for step in steps if isinstance(step, Loop) and step.domain)
    several = [domain for domain, count in counts.items() if count > 1]
    for domain in sorted(several, key=length_of, reverse=True):
        position = 0
        while position < len(steps):
            later = _next_of_domain(steps, position, domain)
            merged = None if later is None else _merge_ends(steps[position : later + 1])
            if later is None or merged is None:
                position += 1
                continue
            steps[position : later + 1] = merged
            position = 0
    return steps


def _next_of_domain(steps: list[Step], position: int, domain: Domain) -> int | None:
    """Return the position of the next loop that can be merged with the loop at ``position``, if that loop has the domain."""
    loop = steps[position]
    if not isinstance(loop, Loop) or loop.domain != domain:
        return None
    later = range(position + 1, len(steps))
    return next((k for k in later if can_fuse(loop, steps[k])), None)


def _merge_ends(steps: list[Step]) -> list[Step] | None:
    """Merge the first and the last of several steps, which are loops; return None if this is impossible."""
    first, *between, last = steps
    assert isinstance(first, Loop)
    assert isinstance(last, Loop)
    group = Group.of(first)
    if group.must_precede(last):
        return None
    before: list[Step] = []
    behind: list[Step] = []
    touched = Accesses(first)
    for step in between:
        if touched.is_independent(step):
            before.append(step)
        else:
            behind.append(step)
            touched.add(step)
    if not all(are_independent(step, last) for step in behind):
        return None
    group.add(last)
    return [*before, group.as_step(), *behind]
