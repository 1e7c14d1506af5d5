"""Loop fusion: loops over the same domain become one, as far as their order allows.

Each loop joins the first group that has its domain and comes after everything that it needs. A group is opened as
early as it can be, so that scalars are ready before the long loops that use them, and these can be one. For the same reason
a short loop does not join a group if one of them waits for rows and rows will read the other: the logarithms of two weights are not
computed with the conjunction of two checks, which would part the loop that checks all rows from the one that weighs them.

What is repeated is a group by itself, and its own steps are fused alike.
"""

from collections.abc import Sequence, Set
from dataclasses import replace
from math import inf, prod

from pymc_fastlogp.kernel.ir.expressions import Buffer
from pymc_fastlogp.kernel.ir.loops import (
    Loop,
    Program,
    Repeat,
    Step,
)
from pymc_fastlogp.kernel.ir.traversal import (
    reads,
    writes,
)
from pymc_fastlogp.kernel.passes.groups import (
    Alone,
    Domain,
    Group,
    Touched,
    are_independent,
    fit,
    is_barrier,
)


def fuse_loops(program: Program) -> Program:
    """Return the program with as few loops as the order of reads and writes allows."""
    return replace(program, steps=_fused(program.steps))


def _fused(steps: Sequence[Step]) -> tuple[Step, ...]:
    groups: list[Group | Alone] = []
    readers = _domains_reading(steps)
    for step in steps:
        if isinstance(step, Repeat):
            alone = Alone(replace(step, steps=_fused(step.steps)))
            groups.insert(_earliest(groups, step), alone)
        elif 0 not in step.domain:
            _place(groups, step, readers).add(step)
    return tuple(_joined([group.as_step() for group in groups]))


def _domains_reading(steps: Sequence[Step]) -> dict[Buffer, set[Domain]]:
    """Return for each buffer the domains of the loops that read it; what is repeated joins none of them."""
    found: dict[Buffer, set[Domain]] = {}
    for step in steps:
        if isinstance(step, Loop):
            for buffer in reads(step):
                found.setdefault(buffer, set()).add(step.domain)
    return found


def _earliest(groups: list[Group | Alone], step: Step) -> int:
    """Return the first position at which all that has to come before a step is before it, or at it."""
    written, touched = writes(step), reads(step) | writes(step)
    is_movable = not is_barrier(step)
    for position in reversed(range(len(groups))):
        group = groups[position]
        is_apart = group.writes.isdisjoint(touched) and group.reads.isdisjoint(written)
        # Of hundreds of groups nearly all: they are not asked what takes longer.
        if is_apart and is_movable and not group.is_barrier:
            continue
        if group.must_precede(step):
            return position + 1
        if not group.writes.isdisjoint(touched):
            return position
    return 0


def _place(groups: list[Group | Alone], loop: Loop, readers: dict[Buffer, set[Domain]]) -> Group:
    """Return the group that a loop joins, perhaps a new one."""
    earliest = _earliest(groups, loop)
    # A scalar is cheap to compute and should not wait for others. Nothing moves across a check, so it joins none.
    end = len(groups) if loop.domain else min(earliest + 1, len(groups))
    for position in range(earliest, earliest if is_barrier(loop) else end):
        group = groups[position]
        if isinstance(group, Alone) or group.is_barrier or not group.fits(loop):
            continue
        if not _would_wait(group, loop, groups[:position], readers):
            return group
    group = Group(loop.domain)
    groups.insert(earliest, group)
    return group


def _would_wait(
    group: Group, loop: Loop, before: list[Group | Alone], readers: dict[Buffer, set[Domain]]
) -> bool:
    """Whether of a group and a loop, as one, a part would wait for longer loops like those that read it.

    What depends on one another stays together: the loop may have no place before the group.
    """
    if group.writes & (reads(loop) | writes(loop)):
        return False
    of_group, of_loop = _needed(group.reads, before), _needed(reads(loop), before)
    parts = (of_group - of_loop, writes(loop)), (of_loop - of_group, group.writes)
    for waits, written in parts:
        reading = set[Domain]().union(*(readers.get(buffer, ()) for buffer in written))
        loops = (before[position] for position in waits)
        domains = {group.domain for group in loops if isinstance(group, Group)} & reading
        if any(_length(domain) > _length(loop.domain) for domain in domains):
            return True
    return False


def _needed(read: Set[Buffer], groups: list[Group | Alone]) -> set[int]:
    """Return the positions of the groups that have to come before some reads, directly or not."""
    needed, found = set(read), set()
    for position in reversed(range(len(groups))):
        if groups[position].writes & needed:
            found.add(position)
            needed |= groups[position].reads
    return found


def _length(domain: Domain) -> float:
    """Return how often a loop runs; one whose length is known only when it is called is long."""
    return prod(size if isinstance(size, int) else inf for size in domain)


def _joined(steps: list[Step]) -> list[Step]:
    """Return the steps after loops that opened early have met a later one of their domain, the longest first.

    What stands between them moves before both or behind both, which nothing between may forbid.
    """
    domains = dict.fromkeys(step.domain for step in steps if isinstance(step, Loop) and step.domain)
    for domain in sorted(domains, key=_length, reverse=True):
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
