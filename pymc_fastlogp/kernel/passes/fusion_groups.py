"""Groups of loops that have become one, of which :mod:`~pymc_fastlogp.kernel.passes.fuse` makes a program.

What a group stores it keeps as expressions, by element. A later statement of the group that reads such an
element gets the expression in place of the load, so that the value stays in a register; one that
accumulates in it changes the expression. Where the position along one axis is data, and every element
along that axis is known, the read becomes a chain of Switches, and the accumulation one in each element.
Anything else has to wait for the end of the group.
"""

from dataclasses import dataclass, field
from typing import Self

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.arithmetic import (
    base_and_offset,
    int64,
    neutral,
    switch,
    truth,
)
from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Const, Expr, Load, Size
from pymc_fastlogp.kernel.ir.loops import (
    Accumulate,
    Call,
    Check,
    Loop,
    PrefixSum,
    SequentialLoop,
    Statement,
    Step,
    Store,
    Write,
)
from pymc_fastlogp.kernel.ir.substitute import Substitution
from pymc_fastlogp.kernel.ir.traversal import (
    is_call,
    is_uniform,
    loaded,
    loads,
    loops_in,
    reads,
    roots,
    updates,
    writes,
)

Element = tuple[Expr, ...]
Domain = tuple[Size, ...]


@dataclass
class Group:
    """Loops of a common domain that have become one.

    Attributes
    ----------
    stored : dict of Buffer to dict
        The elements that were stored, by index, as expressions.
    others : list of Statement
        All other statements.
    reads, writes : set of Buffer
        What they touch in memory.
    is_barrier : bool
        Whether nothing may move across.
    is_call : bool
        Whether it is the call of a library, which is alone.
    """

    domain: Domain
    stored: dict[Buffer, dict[Element, Expr]] = field(default_factory=dict)
    others: list[Statement] = field(default_factory=list)
    reads: set[Buffer] = field(default_factory=set)
    writes: set[Buffer] = field(default_factory=set)
    is_barrier: bool = False
    is_call: bool = False

    @classmethod
    def of(cls, *loops: Loop) -> Self:
        """Return the group of some loops, at least one."""
        group = cls(loops[0].domain)
        for loop in loops:
            group.add(loop)
        return group

    def as_step(self) -> Loop:
        """Return the loop."""
        stores = (
            Store(buffer, index, value)
            for buffer, elements in self.stored.items()
            for index, value in elements.items()
        )
        return Loop(self.domain, (*stores, *self.others))

    def fits(self, loop: Loop) -> bool:
        """Return whether the loop can be part of the group."""
        return self.domain == loop.domain and not (self.is_call or is_call(loop))

    def add(self, loop: Loop) -> None:
        """Append the statements of a loop."""
        self.is_call = self.is_call or is_call(loop)
        forwarding = Substitution(self._forwarded)
        for statement in loop.body:
            # Of most statements nothing is forwarded, and expressions may be long.
            is_known = self.stored.keys().isdisjoint(loaded(roots(statement)))
            self._add(statement if is_known else forwarding.of(statement))
            if not isinstance(statement, Check) and statement.buffer in reads(loop):
                forwarding.clear()

    def _add(self, statement: Statement) -> None:
        self.reads |= reads(Loop(self.domain, (statement,)))
        if isinstance(statement, Check):
            self.others.append(statement)
            self.is_barrier = True
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
        nothing = neutral(statement.op, dtype)
        for position, index in _along_axis(statement.buffer, elements, statement.index):
            value = switch(position, statement.value, nothing)
            elements[index] = combined(elements[index], value)

    def _forwarded(self, expr: Expr) -> Expr | None:
        """Return the expression of an element that is loaded, None if it is not stored here."""
        if not isinstance(expr, Load) or expr.buffer not in self.stored:
            return None
        elements = self.stored[expr.buffer]
        if expr.index in elements:
            return elements[expr.index]
        line = _along_axis(expr.buffer, elements, expr.index)
        if not line:
            return None  # an element that the group does not write
        *rest, (_, last) = line
        value = elements[last]
        for position, index in reversed(rest):
            value = switch(position, elements[index], value)
        return value

    def must_precede(self, step: Step) -> bool:
        """Return whether a step has to come later than the group, not within it."""
        if self.is_barrier or is_barrier(step) or self._reads_before(step):
            return True
        if isinstance(step, SequentialLoop) or not self.fits(step):
            return not (
                self.writes.isdisjoint(reads(step)) and self.writes.isdisjoint(writes(step))
            )
        return not (self._can_forward(step) and self._can_write(step))

    def _reads_before(self, step: Step) -> bool:
        """Return whether the group reads an element that the step may write."""
        both = writes(step) & self.reads
        if not both or isinstance(step, SequentialLoop):
            return bool(both)
        written = [update for update in updates(step) if update.buffer in both]
        return any(
            load.buffer is update.buffer and not _are_apart(load.index, update.index)
            for load in loads(self.as_step())
            for update in written
        )

    def _can_forward(self, loop: Loop) -> bool:
        if not self.writes & reads(loop):
            return True
        return all(
            self._has(load.buffer, load.index) for load in loads(loop) if load.buffer in self.writes
        )

    def _has(self, buffer: Buffer, index: Element) -> bool:
        """Return whether the element, or each that it may be, is kept as an expression."""
        elements = self.stored.get(buffer, {})
        return index in elements or bool(_along_axis(buffer, elements, index))

    def _can_write(self, loop: Loop) -> bool:
        return all(map(self._can_write_one, (u for u in updates(loop) if u.buffer in self.writes)))

    def _can_write_one(self, statement: Write) -> bool:
        if isinstance(statement, PrefixSum | Call):
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


@dataclass
class Alone:
    """Sequential loop, which no other loop joins."""

    repeat: SequentialLoop

    def __post_init__(self) -> None:
        self.reads, self.writes = reads(self.repeat), writes(self.repeat)
        self.is_barrier = is_barrier(self.repeat)

    def as_step(self) -> SequentialLoop:
        """Return it."""
        return self.repeat

    def fits(self, loop: Loop) -> bool:
        """Say that no loop can be part of it."""
        return False

    def must_precede(self, step: Step) -> bool:
        """Return whether a step has to come later."""
        return not are_independent(self.repeat, step)


class Touched:
    """Reads and writes of at least one step, cached between changes of the steps."""

    def __init__(self, step: Step):
        self._reads, self._writes = set(reads(step)), set(writes(step))
        self._is_barrier = is_barrier(step)

    def add(self, step: Step) -> None:
        """Add another step."""
        self._reads |= reads(step)
        self._writes |= writes(step)
        self._is_barrier |= is_barrier(step)

    def is_independent(self, step: Step) -> bool:
        """Return whether a step may change places with all of them."""
        if self._is_barrier or is_barrier(step):
            return False
        return (
            self._writes.isdisjoint(writes(step))
            and self._writes.isdisjoint(reads(step))
            and self._reads.isdisjoint(writes(step))
        )


def fit(first: Loop, second: Step) -> bool:
    """Return whether two loops run for the same indices; a call of a library is alone, and so is what is repeated."""
    if isinstance(second, SequentialLoop):
        return False
    return first.domain == second.domain and not (is_call(first) or is_call(second))


def are_independent(first: Step, second: Step) -> bool:
    """Return whether two steps may change places."""
    return Touched(first).is_independent(second)


def is_barrier(step: Step) -> bool:
    """Return whether nothing may move across: a check that fails ends the kernel."""
    if "is_barrier" not in vars(step):
        every = (statement for loop in loops_in((step,)) for statement in loop.body)
        vars(step)["is_barrier"] = any(isinstance(statement, Check) for statement in every)
    return vars(step)["is_barrier"]


def _are_apart(first: Element, second: Element) -> bool:
    """Return whether two indices are known to be of different elements, in whatever turns of a loop."""
    for a, b in zip(first, second, strict=True):
        (base, offset), (other_base, other_offset) = base_and_offset(a), base_and_offset(b)
        if base is other_base and offset != other_offset and is_uniform(base):
            return True
    return False


def _along_axis(
    buffer: Buffer, elements: dict[Element, Expr], index: Element
) -> list[tuple[Expr, Element]]:
    """Return the stored elements that one with a position of data along one axis may be, with whether each is the one.

    Empty unless all elements along that axis are stored.
    """
    for axis, (position, length) in enumerate(zip(index, buffer.shape, strict=True)):
        if isinstance(position, Const) or not isinstance(length, int) or length > len(elements):
            continue
        positions = [int64(k) for k in range(length)]
        line = [(*index[:axis], k, *index[axis + 1 :]) for k in positions]
        if line and all(element in elements for element in line):
            tests = [truth(ps.eq, position, k) for k in positions]
            return list(zip(tests, line, strict=True))
    return []
