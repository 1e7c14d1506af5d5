"""Groups of loops in their order, found by what they read, write and run over.

A model of hundreds of likelihoods has thousands of loops and groups, and each loop asks which groups have to come before it. Nearly all
have nothing to do with it, and are not looked at.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf, prod

from pymc_fastlogp.kernel.ir.expressions import Buffer
from pymc_fastlogp.kernel.ir.loops import Loop, Step
from pymc_fastlogp.kernel.ir.traversal import reads, writes
from pymc_fastlogp.kernel.passes.fusion_groups import Alone, Domain, Group, is_barrier


@dataclass
class Readers:
    """The domains of loops that read some buffers, and the length of the longest, 0 if there is none."""

    domains: set[Domain] = field(default_factory=set)
    longest: float = 0

    def add(self, domains: Iterable[Domain]) -> None:
        """Add domains."""
        for domain in domains:
            self.domains.add(domain)
            self.longest = max(self.longest, length_of(domain))


def length_of(domain: Domain) -> float:
    """Return how often a loop runs; one whose length is known only when it is called is long."""
    return prod(size if isinstance(size, int) else inf for size in domain)


class Order:
    """Groups in their order.

    Parameters
    ----------
    steps : sequence of Step
        All loops that will be added.

    Attributes
    ----------
    groups : list of Group or Alone
        The groups.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.groups: list[Group | Alone] = []
        self._positions: dict[int, int] = {}
        self._barriers: list[Group | Alone] = []
        self._readers = defaultdict[Buffer, list[Group | Alone]](list)
        self._writers = defaultdict[Buffer, list[Group | Alone]](list)
        self._of_domain = defaultdict[Domain, list[Group]](list)
        self._domains = _domains_reading(steps)
        self._readers_of_group = defaultdict[int, Readers](Readers)

    def insert(self, position: int, group: Group | Alone) -> None:
        """Put a new group at a position, before what is there."""
        self.groups.insert(position, group)
        for k in range(position, len(self.groups)):
            self._positions[id(self.groups[k])] = k
        if isinstance(group, Group):
            self._of_domain[group.domain].append(group)
        else:
            self._index(group, group.reads, group.writes)
            self._note_barrier(group)

    def add(self, group: Group, loop: Loop) -> None:
        """Append a loop to a group."""
        # What the group takes over instead of reading it is indexed as well, which finds the group too often, not too seldom.
        self._index(group, reads(loop) - group.reads, writes(loop) - group.writes)
        group.add(loop)
        self._note_barrier(group)

    def _index(self, group: Group | Alone, read: Set[Buffer], written: Set[Buffer]) -> None:
        for buffer in read:
            self._readers[buffer].append(group)
        for buffer in written:
            self._writers[buffer].append(group)
            self._readers_of_group[id(group)].add(self._domains.get(buffer, ()))

    def readers_of(self, written: Iterable[Buffer]) -> Readers:
        """Return what loops read some buffers."""
        found = Readers()
        for buffer in written:
            found.add(self._domains.get(buffer, ()))
        return found

    def readers_of_group(self, group: Group | Alone) -> Readers:
        """Return what loops read what a group writes; kept, as a group may write much and be asked often."""
        return self._readers_of_group[id(group)]

    def _note_barrier(self, group: Group | Alone) -> None:
        if group.is_barrier:
            self._barriers.append(group)

    def earliest(self, step: Step) -> int:
        """Return the first position at which all that has to come before a step is before it, or at it."""
        if is_barrier(step):
            return len(self.groups)
        touched = reads(step) | writes(step)
        for position in sorted(self._before(step), reverse=True):
            group = self.groups[position]
            if group.must_precede(step):
                return position + 1
            if not group.writes.isdisjoint(touched):
                return position
        return 0

    def _before(self, step: Step) -> set[int]:
        """Return the positions of the groups that may have to come before a step."""
        written = writes(step)
        groups = [
            *(group for buffer in reads(step) | written for group in self._writers.get(buffer, ())),
            *(group for buffer in written for group in self._readers.get(buffer, ())),
            *self._barriers,
        ]
        return {self._positions[id(group)] for group in groups}

    def of_domain(self, domain: Domain, first: int) -> Iterator[tuple[int, Group]]:
        """Yield the groups of a domain from a position on, with their positions, in their order."""
        positions = (self._positions[id(group)] for group in self._of_domain.get(domain, ()))
        for position in sorted(position for position in positions if position >= first):
            group = self.groups[position]
            assert isinstance(group, Group)
            yield position, group

    def needed(self, read: Set[Buffer], end: int) -> set[int]:
        """Return the positions before ``end`` of the groups that have to come before some reads, directly or not."""
        found = set[int]()
        # The last of them first, as negative numbers.
        pending: list[int] = []
        buffers = read
        while True:
            for buffer in buffers:
                for group in self._writers.get(buffer, ()):
                    position = self._positions[id(group)]
                    if position < end and position not in found:
                        found.add(position)
                        heappush(pending, -position)
            if not pending:
                return found
            end = -heappop(pending)
            buffers = self.groups[end].reads


def _domains_reading(steps: Sequence[Step]) -> Mapping[Buffer, set[Domain]]:
    """Return for each buffer the domains of the loops that read it; what is repeated joins none of them."""
    found = defaultdict[Buffer, set[Domain]](set)
    for step in steps:
        if isinstance(step, Loop):
            for buffer in reads(step):
                found[buffer].add(step.domain)
    return found
