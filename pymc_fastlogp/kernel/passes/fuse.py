"""Loop fusion: loops over the same domain become one, as far as their order allows.

Each loop joins the first group that has its domain and comes after everything that it needs. A group is opened as
early as it can be, so that scalars are ready before the long loops that use them, and these can be one. For the same reason
a short loop does not join a group if one of them waits for rows and rows will read the other: the logarithms of two weights are not
computed with the conjunction of two checks, which would part the loop that checks all rows from the one that weighs them.

What is repeated is a group by itself, and its own steps are fused alike.
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
    Alone,
    Domain,
    Group,
    Touched,
    are_independent,
    fit,
    is_barrier,
)
from pymc_fastlogp.kernel.passes.fusion_order import Order, length_of


def fuse_loops(program: Program) -> Program:
    """Return the program with as few loops as the order of reads and writes allows."""
    return replace(program, steps=_fused(program.steps))


def _fused(steps: Sequence[Step]) -> tuple[Step, ...]:
    order = Order(steps)
    for step in steps:
        if isinstance(step, SequentialLoop):
            alone = Alone(replace(step, steps=_fused(step.steps)))
            order.insert(order.earliest(step), alone)
        elif 0 not in step.domain:
            order.add(_place(order, step), step)
    return tuple(_joined([group.as_step() for group in order.groups]))


def _place(order: Order, loop: Loop) -> Group:
    """Return the group that a loop joins, perhaps a new one."""
    earliest = order.earliest(loop)
    for position, group in _candidates(order, loop, earliest):
        if group.is_barrier or not group.fits(loop):
            continue
        if not _would_wait(order, position, loop):
            return group
    group = Group(loop.domain)
    order.insert(earliest, group)
    return group


def _candidates(order: Order, loop: Loop, earliest: int) -> Iterable[tuple[int, Group]]:
    """Return the groups of a loop's domain that it may join, with their positions."""
    if is_barrier(loop):  # nothing moves across a check
        return []
    if loop.domain:
        return order.of_domain(loop.domain, earliest)
    # A scalar is cheap to compute and should not wait for others.
    here = order.groups[earliest : earliest + 1]
    return [(earliest, group) for group in here if isinstance(group, Group)]


def _would_wait(order: Order, position: int, loop: Loop) -> bool:
    """Return whether of the group at a position and a loop, as one, a part would wait for longer loops like those that read it.

    What depends on one another stays together: the loop may have no place before the group.
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


def _joined(steps: list[Step]) -> list[Step]:
    """Return the steps after loops that opened early have met a later one of their domain, the longest first.

    What stands between them moves before both or behind both, which nothing between may forbid.
    """
    counts = Counter(step.domain for step in steps if isinstance(step, Loop) and step.domain)
    several = [domain for domain, count in counts.items() if count > 1]
    for domain in sorted(several, key=length_of, reverse=True):
        position = 0
        while position < len(steps):
            later = _next_of_domain(steps, position, domain)
            met = None if later is None else _met(steps[position : later + 1])
            if later is None or met is None:
                position += 1
                continue
            steps[position : later + 1] = met
            position = 0
    return steps


def _next_of_domain(steps: list[Step], position: int, domain: Domain) -> int | None:
    """Return the position of the next loop that runs for the same indices, if the one here has the domain."""
    loop = steps[position]
    if not isinstance(loop, Loop) or loop.domain != domain:
        return None
    later = range(position + 1, len(steps))
    return next((k for k in later if fit(loop, steps[k])), None)


def _met(steps: list[Step]) -> list[Step] | None:
    """Return steps of which the first and the last, loops both, have become one, None if they cannot."""
    first, *between, last = steps
    assert isinstance(first, Loop)
    assert isinstance(last, Loop)
    group = Group.of(first)
    if group.must_precede(last):
        return None
    before: list[Step] = []
    behind: list[Step] = []
    touched = Touched(first)
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
