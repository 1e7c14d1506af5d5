r"""Carried sums: add the terms of each step to the total that steps carry.

.. code-block:: text

    repeat t n:                              repeat t n:
        s[] = 0                                  loop m:
        loop m:                        ->            b[] += f(x[t, i0])
            s[] += f(x[t, i0])
        c[] = s[] + b[]
        b[] = c[]

The gradient with respect to a parameter of all series is such a total: the reverse recursion sums over the series in each step, and over the steps. Without the
sum of a step, no result of a step depends on all series, so chunks of series (:mod:`pymc_fastlogp.kernel.passes.chunk`) can run all steps.

The rewrite needs that nothing else reads ``s``, ``b`` or ``c`` during the steps, nor ``s`` or ``c`` after them. This is a part of the pass
:mod:`~pymc_fastlogp.kernel.passes.step_motion`.
"""

from collections import defaultdict
from collections.abc import Iterator, Set
from dataclasses import replace
from typing import NamedTuple

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Const, Expr, Load, Role
from pymc_fastlogp.kernel.ir.loops import (
    Accumulate,
    Loop,
    Program,
    SequentialLoop,
    Statement,
    Store,
)
from pymc_fastlogp.kernel.ir.traversal import loaded, reads, roots, updates, walk

# An element at a constant position.
Element = tuple[Buffer, tuple[Expr, ...]]


def add_to_carried_sums(program: Program) -> Program:
    """Add to carried totals in place of sums of a step."""
    steps = program.steps
    changed = (
        _changed(step, {buffer for x in steps if x is not step for buffer in reads(x)})
        if isinstance(step, SequentialLoop)
        else step
        for step in steps
    )
    return replace(program, steps=tuple(changed))


def _changed(repeat: SequentialLoop, read_elsewhere: Set[Buffer]) -> SequentialLoop:
    """Return a loop without sums of a step; ``read_elsewhere`` are the buffers that other steps of the program read."""
    loops = [step for step in repeat.steps if isinstance(step, Loop)]
    if len(loops) < len(repeat.steps):
        return repeat
    accesses = _Accesses(loops, read_elsewhere)
    dropped: set[Statement] = set()
    target: dict[Element, Element] = {}
    for loop in loops:
        for carry in loop.body:
            if total := accesses.total_of(carry):
                dropped |= {carry, *total.dropped}
                target |= dict.fromkeys(total.sums, total.element)
    if not target:
        return repeat
    steps = []
    for loop in loops:
        body = tuple(_redirected(x, target) for x in loop.body if x not in dropped)
        steps += [replace(loop, body=body)] if body else []
    return replace(repeat, steps=tuple(steps))


def _redirected(statement: Statement, target: dict[Element, Element]) -> Statement:
    if not isinstance(statement, Accumulate) or _written(statement) not in target:
        return statement
    buffer, index = target[_written(statement)]
    return replace(statement, buffer=buffer, index=index)


def _written(statement: Store | Accumulate) -> Element:
    return statement.buffer, statement.index


class _Total(NamedTuple):
    """A carried total, the sums of a step that are added to the total, and the statements that set these sums and add them."""

    element: Element
    sums: list[Element]
    dropped: list[Statement]


class _Accesses:
    """Statements that read and write elements at constant positions."""

    def __init__(self, loops: list[Loop], read_elsewhere: Set[Buffer]):
        self.readers: defaultdict[Element, list[Statement]] = defaultdict(list)
        self.writers: defaultdict[Element, list[Statement]] = defaultdict(list)
        self.position: dict[Statement, int] = {}
        self.read_elsewhere = read_elsewhere
        # Buffers with an access at another position.
        self.unknown = {buffer for x in loops if x.when is not None for buffer in loaded([x.when])}
        for number, loop in enumerate(loops):
            for statement in loop.body:
                self.position[statement] = number
                for part in walk(roots(statement)):
                    if isinstance(part, Load):
                        self._add(self.readers, (part.buffer, part.index), statement)
            for update in updates(loop):
                self._add(self.writers, (update.buffer, update.index), update)

    def _add(
        self, accesses: dict[Element, list[Statement]], element: Element, statement: Statement
    ) -> None:
        buffer, index = element
        if not all(isinstance(i, Const) for i in index):
            self.unknown.add(buffer)
        accesses[element].append(statement)

    def total_of(self, carry: Statement) -> _Total | None:
        """Return the total that a statement carries to the next step, None if the statement is no such carry."""
        if not isinstance(carry, Store) or not isinstance(carry.value, Load):
            return None
        element = _written(carry)
        [addition, *others] = self.writers[carry.value.buffer, carry.value.index] or [carry]
        if others or not isinstance(addition, Store) or not self._is_local(_written(addition)):
            return None
        addends = _addends(addition)
        sums = [x for x in addends if x != element]
        if len(sums) != len(addends) - 1 or len({*sums}) < len(sums):
            return None
        if not all(self._is_sum(x, element, addition) for x in sums):
            return None
        accesses = self.writers[element], self.readers[element], self.readers[_written(addition)]
        if accesses != ([carry], [addition], [carry]) or element[0] in self.unknown:
            return None
        if self.position[addition] >= self.position[carry]:
            return None
        return _Total(element, sums, [addition, *(self.writers[x][0] for x in sums)])

    def _is_sum(self, element: Element, total: Element, addition: Statement) -> bool:
        """Return whether an element is a sum of a step, set to zero at first, that only an addition reads."""
        if not self._is_local(element) or self.readers[element] != [addition]:
            return False
        zero, *terms = self.writers[element] or [addition]
        places = [self.position[x] for x in (zero, *terms, addition)]
        return (
            isinstance(zero, Store)
            and isinstance(zero.value, Const)
            and zero.value.value == 0
            and all(isinstance(x, Accumulate) and x.op == ps.add for x in terms)
            and element[0].dtype == total[0].dtype
            and places[0] < min(places[1:])
            and places[-1] > max(places[:-1])
        )

    def _is_local(self, element: Element) -> bool:
        """Return whether only known statements of the steps read a buffer."""
        buffer, _ = element
        is_read = buffer in self.read_elsewhere or buffer in self.unknown
        return buffer.role is Role.SCRATCH and not is_read


def _addends(addition: Store) -> list[Element]:
    """Return the elements that a statement adds, empty if it does something else, or adds integers, which may overflow."""
    value = addition.value
    if not isinstance(value, Compute) or not isinstance(value.op, ps.Add):
        return []
    loads: Iterator[Load] = (x for x in value.args if isinstance(x, Load))
    found = [(x.buffer, x.index) for x in loads]
    is_known = len(found) == len(value.args) and addition.buffer.dtype.startswith("float")
    return found if is_known else []
