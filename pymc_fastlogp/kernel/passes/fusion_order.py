"""Order of fusion groups, indexed by reads, writes and domains.

A model of hundreds of likelihoods has thousands of loops and groups. For each loop the groups that must precede it are looked up by buffer, which
replaces a comparison with every group.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf, prod

from pymc_fastlogp.kernel.ir.expressions import Buffer
from pymc_fastlogp.kernel.ir.loops import Loop, Step
from pymc_fastlogp.kernel.ir.traversal import reads, writes
from pymc_fastlogp.kernel.passes.fusion_groups import Domain, Group, SequentialGroup, is_barrier


@dataclass
class Readers:
    """Domains of the loops that read some buffers, and the number of iterations of the longest, 0 without readers."""

    domains: set[Domain] = field(default_factory=set)
    longest: float = 0

    def add(self, domains: Iterable[Domain]) -> None:
        """Add domains."""
        for domain in domains:
            self.domains.add(domain)
            self.longest = max(self.longest, length_of(domain))


def length_of(domain: Domain) -> float:
    """Return the number of iterations of a loop; infinity if a length is dynamic."""
    return prod(size if isinstance(size, int) else inf for size in domain)


class Order:
    """Ordered list of groups, with indices of their reads, writes and domains.

    Parameters
    ----------
    steps : sequence of Step
        All steps that will be added.

    Attributes
    ----------
    groups : list of Group or SequentialGroup
        Groups in the order of execution.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.groups: list[Group | SequentialGroup] = []
        self._positions: dict[int, int] = {}
        self._barriers: list[Group | SequentialGroup] = []
        self._readers = defaultdict[Buffer, list[Group | SequentialGroup]](list)
        self._writers = defaultdict[Buffer, list[Group | SequentialGroup]](list)
        self._of_domain = defaultdict[Domain, list[Group]](list)
        self._domains = _domains_reading(steps)
        self._readers_of_group = defaultdict[int, Readers](Readers)

    def insert(self, position: int, group: Group | SequentialGroup) -> None:
        """Insert a new group at a position."""
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
        # Loads that the group replaces by expressions are indexed, too. Lookups then return a superset of the readers, which is safe.
        self._index(group, reads(loop) - group.reads, writes(loop) - group.writes)
        group.add(loop)
        self._note_barrier(group)

    def _index(
        self, group: Group | SequentialGroup, read: Set[Buffer], written: Set[Buffer]
    ) -> None:
        for buffer in read:
            self._readers[buffer].append(group)
        for buffer in written:
            self._writers[buffer].append(group)
            self._readers_of_group[id(group)].add(self._domains.get(buffer, ()))

    def readers_of(self, written: Iterable[Buffer]) -> Readers:
        """Return the readers of some buffers."""
        found = Readers()
        for buffer in written:
            found.add(self._domains.get(buffer, ()))
        return found

    def readers_of_group(self, group: Group | SequentialGroup) -> Readers:
        """Return the readers of all buffers that a group writes, from a cache that is updated with the group."""
        return self._readers_of_group[id(group)]

    def _note_barrier(self, group: Group | SequentialGroup) -> None:
        if group.is_barrier:
            self._barriers.append(group)

    def earliest(self, step: Step) -> int:
        """Return the earliest position for a step.

        This is the position after the last group that must precede the step, or the position of a later group on which
        the step depends and which the step may join.
        """
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
        """Return the positions of the groups that may have to precede a step."""
        written = writes(step)
        groups = [
            *(group for buffer in reads(step) | written for group in self._writers.get(buffer, ())),
            *(group for buffer in written for group in self._readers.get(buffer, ())),
            *self._barriers,
        ]
        return {self._positions[id(group)] for group in groups}

    def of_domain(self, domain: Domain, first: int) -> Iterator[tuple[int, Group]]:
        """Yield the groups of a domain from a position on, with their positions, in order."""
        positions = (self._positions[id(group)] for group in self._of_domain.get(domain, ()))
        for position in sorted(position for position in positions if position >= first):
            group = self.groups[position]
            assert isinstance(group, Group)
            yield position, group

    def needed(self, read: Set[Buffer], end: int) -> set[int]:
        """Return the positions before ``end`` of the groups on which some reads depend, directly or not."""
        found = set[int]()
        # A heap of negated positions, so that the last group is popped first.
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
    """Map each buffer to the domains of the loops that read it. Sequential loops are ignored, because no loop can join them."""
    found = defaultdict[Buffer, set[Domain]](set)
    for step in steps:
        if isinstance(step, Loop):
            for buffer in reads(step):
                found[buffer].add(step.domain)
    return found
