"""Loop fusion: loops over the same domain become one, as far as their order allows.

Each loop joins the first group that has its domain and comes after everything that it needs. A group is opened as
early as it can be, so that scalars are ready before the long loops that use them, and these can be one. For the same reason
a short loop does not join a group if one of them waits for rows and rows will read the other: the logarithms of two weights are not
computed with the conjunction of two checks, which would part the loop that checks all rows from the one that weighs them.

What a group stores it keeps as expressions, by element. A later statement of the group that reads such an
element gets the expression in place of the load, so that the value stays in a register; one that
accumulates in it changes the expression. Where the position along one axis is data, and every element
along that axis is known, the read becomes a chain of Switches, and the accumulation one in each element.
Anything else has to wait for the end of the group.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod
from typing import Self

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.arithmetic import identity, int64, switch, truth
from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Const, Expr, Load, Size
from pymc_fastlogp.kernel.ir.loops import (
    Accumulate,
    Call,
    Check,
    Loop,
    Program,
    Scan,
    Statement,
    Store,
    Write,
)
from pymc_fastlogp.kernel.ir.substitute import substitute
from pymc_fastlogp.kernel.ir.traversal import is_call, loads, reads, updates, writes

Element = tuple[Expr, ...]
Domain = tuple[Size, ...]


@dataclass
class Group:
    """Loops of a common domain and condition that have become one.

    Attributes
    ----------
    stored : dict of Buffer to dict
        The elements that were stored, by index, as expressions.
    others : list of Statement
        All other statements.
    reads, writes : set of Buffer
        What they touch in memory.
    """

    domain: Domain
    when: Expr | None = None
    stored: dict[Buffer, dict[Element, Expr]] = field(default_factory=dict)
    others: list[Statement] = field(default_factory=list)
    reads: set[Buffer] = field(default_factory=set)
    writes: set[Buffer] = field(default_factory=set)

    @classmethod
    def of(cls, *loops: Loop) -> Self:
        """Return the group of some loops, at least one."""
        group = cls(loops[0].domain, loops[0].when)
        for loop in loops:
            group.add(loop)
        return group

    def as_loop(self) -> Loop:
        """Return the loop."""
        stores = (
            Store(buffer, index, value)
            for buffer, elements in self.stored.items()
            for index, value in elements.items()
        )
        return Loop(self.domain, (*stores, *self.others), self.when)

    def fits(self, loop: Loop) -> bool:
        """Whether the loop can be part of the group."""
        return self.domain == loop.domain and _fit(self.as_loop(), loop)

    def add(self, loop: Loop) -> None:
        """Append the statements of a loop."""
        for statement in loop.body:
            self._add(*substitute((statement,), self._forwarded))

    def _add(self, statement: Statement) -> None:
        self.reads |= reads(Loop(self.domain, (statement,), self.when))
        if isinstance(statement, Check):
            self.others.append(statement)
            return
        self.writes.add(statement.buffer)
        elements = self.stored.setdefault(statement.buffer, {})
        if isinstance(statement, Store) and not statement.in_order:
            elements[statement.index] = statement.value
        elif isinstance(statement, Accumulate) and elements:
            self._accumulate(elements, statement)
        else:
            del self.stored[statement.buffer]
            self.others.append(statement)

    def _accumulate(self, elements: dict[Element, Expr], statement: Accumulate) -> None:
        """Change the expressions of the elements in which a statement accumulates."""
        dtype = statement.buffer.dtype

        def combined(before: Expr, value: Expr) -> Expr:
            return Compute(statement.op, (before, value), dtype)

        if statement.index in elements:
            elements[statement.index] = combined(elements[statement.index], statement.value)
            return
        neutral = identity(statement.op, dtype)
        for position, index in _along_axis(statement.buffer, elements, statement.index):
            value = switch(position, statement.value, neutral)
            elements[index] = combined(elements[index], value)

    def _forwarded(self, expr: Expr) -> Expr | None:
        """Return the expression of an element that is loaded, None if it is not stored here."""
        if not isinstance(expr, Load) or expr.buffer not in self.stored:
            return None
        elements = self.stored[expr.buffer]
        if expr.index in elements:
            return elements[expr.index]
        *rest, (_, last) = _along_axis(expr.buffer, elements, expr.index)
        value = elements[last]
        for position, index in reversed(rest):
            value = switch(position, elements[index], value)
        return value

    def must_precede(self, loop: Loop) -> bool:
        """Whether the loop has to come later than the group, not within it."""
        if _is_barrier(self.others) or _is_barrier(loop.body) or writes(loop) & self.reads:
            return True
        if not self.fits(loop):
            return bool(self.writes & (reads(loop) | writes(loop)))
        return not (self._can_forward(loop) and self._can_write(loop))

    def _can_forward(self, loop: Loop) -> bool:
        if not self.writes & reads(loop):
            return True
        return all(
            self._has(load.buffer, load.index) for load in loads(loop) if load.buffer in self.writes
        )

    def _has(self, buffer: Buffer, index: Element) -> bool:
        """Whether the element, or each that it may be, is kept as an expression."""
        elements = self.stored.get(buffer, {})
        return index in elements or bool(_along_axis(buffer, elements, index))

    def _can_write(self, loop: Loop) -> bool:
        return all(map(self._can_write_one, (u for u in updates(loop) if u.buffer in self.writes)))

    def _can_write_one(self, statement: Write) -> bool:
        if isinstance(statement, Scan | Call):
            return False
        elements = self.stored.get(statement.buffer)
        if elements is None:
            return isinstance(statement, Accumulate) and all(
                isinstance(other, Accumulate) and other.op == statement.op
                for other in self.others
                if not isinstance(other, Check) and other.buffer is statement.buffer
            )
        if isinstance(statement, Accumulate):
            return self._has(statement.buffer, statement.index)
        return not statement.in_order and all(
            index == statement.index or _are_apart(index, statement.index) for index in elements
        )


def fuse_loops(program: Program) -> Program:
    """Return the program with as few loops as the order of reads and writes allows."""
    groups: list[Group] = []
    readers = _domains_reading(program)
    for loop in program.steps:
        if 0 not in loop.domain:
            _place(groups, loop, readers).add(loop)
    return replace(program, steps=tuple(_joined([group.as_loop() for group in groups])))


def _domains_reading(program: Program) -> dict[Buffer, set[Domain]]:
    """Return for each buffer the domains of the loops that read it."""
    found: dict[Buffer, set[Domain]] = {}
    for loop in program.steps:
        for buffer in reads(loop):
            found.setdefault(buffer, set()).add(loop.domain)
    return found


def _place(groups: list[Group], loop: Loop, readers: dict[Buffer, set[Domain]]) -> Group:
    """Return the group that a loop joins, perhaps a new one."""
    earliest = 0
    for position, group in enumerate(groups):
        if group.must_precede(loop):
            earliest = position + 1
        elif group.writes & (reads(loop) | writes(loop)):
            earliest = position
    # A scalar is cheap to compute and should not wait for others.
    end = len(groups) if loop.domain else earliest + 1
    for position, group in enumerate(groups[earliest:end], start=earliest):
        if not group.fits(loop) or _is_barrier(group.others) or _is_barrier(loop.body):
            continue
        if not _would_wait(group, loop, groups[:position], readers):
            return group
    group = Group(loop.domain, loop.when)
    groups.insert(earliest, group)
    return group


def _would_wait(
    group: Group, loop: Loop, before: list[Group], readers: dict[Buffer, set[Domain]]
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
        domains = {before[position].domain for position in waits} & reading
        if any(_length(domain) > _length(loop.domain) for domain in domains):
            return True
    return False


def _needed(read: set[Buffer], groups: list[Group]) -> set[int]:
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


def _joined(loops: list[Loop]) -> list[Loop]:
    """Return the loops after those that opened early have met a later one of their domain, the longest first.

    What stands between them moves before both or behind both, which nothing between may forbid.
    """
    domains = dict.fromkeys(loop.domain for loop in loops if loop.domain)
    for domain in sorted(domains, key=_length, reverse=True):
        position = 0
        while position < len(loops):
            later = _next_of_domain(loops, position) if loops[position].domain == domain else None
            met = None if later is None else _met(loops[position : later + 1])
            if later is None or met is None:
                position += 1
                continue
            loops[position : later + 1] = met
            position = 0
    return loops


def _next_of_domain(loops: list[Loop], position: int) -> int | None:
    """Return the position of the next loop that runs for the same indices, but for scalars."""
    loop = loops[position]
    later = range(position + 1, len(loops)) if loop.domain else ()
    return next((k for k in later if _fit(loop, loops[k])), None)


def _met(loops: list[Loop]) -> list[Loop] | None:
    """Return loops of which the first and the last have become one, None if they cannot."""
    first, *between, last = loops
    if Group.of(first).must_precede(last):
        return None
    before: list[Loop] = []
    behind: list[Loop] = []
    for loop in between:
        stays_behind = not all(_are_independent(earlier, loop) for earlier in (first, *behind))
        (behind if stays_behind else before).append(loop)
    if not all(_are_independent(loop, last) for loop in behind):
        return None
    return [*before, Group.of(first, last).as_loop(), *behind]


def _fit(first: Loop, second: Loop) -> bool:
    """Whether two loops run for the same indices; a call of a library is alone."""
    is_alone = is_call(first) or is_call(second)
    return first.domain == second.domain and first.when is second.when and not is_alone


def _are_independent(first: Loop, second: Loop) -> bool:
    if _is_barrier(first.body) or _is_barrier(second.body):
        return False
    read, written = reads(first), writes(first)
    return not (written & (reads(second) | writes(second)) or read & writes(second))


def _is_barrier(statements: Sequence[Statement]) -> bool:
    """Whether nothing may move across: a check that fails ends the kernel."""
    return any(isinstance(statement, Check) for statement in statements)


def _are_apart(first: Element, second: Element) -> bool:
    """Whether two indices are known to be of different elements."""
    return any(
        isinstance(a, Const) and isinstance(b, Const) and a is not b
        for a, b in zip(first, second, strict=True)
    )


def _along_axis(
    buffer: Buffer, elements: dict[Element, Expr], index: Element
) -> list[tuple[Expr, Element]]:
    """Return the stored elements that one with a position of data along one axis may be, with whether each is the one.

    Empty unless all elements along that axis are stored.
    """
    for axis, (position, length) in enumerate(zip(index, buffer.shape, strict=True)):
        if isinstance(position, Const) or not isinstance(length, int):
            continue
        positions = [int64(k) for k in range(length)]
        line = [(*index[:axis], k, *index[axis + 1 :]) for k in positions]
        if line and all(element in elements for element in line):
            tests = [truth(ps.eq, position, k) for k in positions]
            return list(zip(tests, line, strict=True))
    return []
