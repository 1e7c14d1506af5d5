r"""Carried sums: add the sums of all steps to a total after the last step.

.. code-block:: text

                                             s[] = 0
    repeat t n:                              repeat t n:
        s[] = 0                                  loop m:
        loop m:                        ->            s[] += f(x[t, i0])
            s[] += f(x[t, i0])               c[] = s[] / k[] + b[]
        c[] = s[] / k[] + b[]                b[] = c[]
        b[] = c[]

The gradient with respect to a parameter of all series is such a total :math:`b`: the reverse recursion sums over the series in each step, and over the steps. With
sums :math:`s_t` of the steps and a linear function :math:`\ell` that does not depend on the step,

.. math::

    b_n = b_0 + \sum_t \ell(s_t) = b_0 + \ell\Big(\sum_t s_t\Big).

On the left, each step waits for all series. On the right, chunks of series (:mod:`pymc_fastlogp.kernel.passes.chunk`) can run all steps.

The rewrite needs that nothing else reads or writes these elements during the steps, and that nothing reads ``s`` behind them. This is a part of the pass :mod:`~pymc_fastlogp.kernel.passes.step_motion`.
"""

from collections import defaultdict
from collections.abc import Iterator, Set
from dataclasses import replace
from typing import NamedTuple

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Const, Expr, Load, Role
from pymc_fastlogp.kernel.ir.loops import Accumulate, Loop, SequentialLoop, Statement, Step, Store
from pymc_fastlogp.kernel.ir.traversal import loaded, roots, updates, walk, writes
from pymc_fastlogp.kernel.scalars.quotient import Quotient


def carry_sums(repeat: SequentialLoop, read_elsewhere: Set[Buffer]) -> Iterator[Step]:
    """Yield the loops that set sums to zero, the sequential loop, and the loops that add the sums to totals.

    Parameters
    ----------
    repeat : SequentialLoop
        The loop.
    read_elsewhere : set of Buffer
        The buffers that other steps of the program read.
    """
    loops = [step for step in repeat.steps if isinstance(step, Loop)]
    has_steps = isinstance(repeat.length, int) and repeat.length > 0
    accesses = _Accesses(repeat, loops, read_elsewhere)
    totals = [x for loop in loops for carry in loop.body if (x := accesses.total_of(carry))]
    if not totals or len(loops) < len(repeat.steps) or not has_steps:
        yield repeat
        return
    before = {zero for total in totals for zero in total.zeros}
    behind = {statement for total in totals for statement in (total.addition, total.carry)}
    every = {statement for loop in loops for statement in loop.body}
    yield from _with_statements(loops, before)
    yield replace(repeat, steps=tuple(_with_statements(loops, every - before - behind)))
    yield from _with_statements(loops, behind)


def _with_statements(loops: list[Loop], kept: Set[Statement]) -> Iterator[Loop]:
    """Yield loops without other statements."""
    for loop in loops:
        if body := tuple(statement for statement in loop.body if statement in kept):
            yield replace(loop, body=body)


def _is_constant(index: tuple[Expr, ...]) -> bool:
    return all(isinstance(i, Const) for i in index)


class _Total(NamedTuple):
    """The statements that set the sums of a total to zero, add them to the total, and carry the result to the next step."""

    zeros: list[Statement]
    addition: Statement
    carry: Statement


class _Accesses:
    """Statements of a sequential loop by the elements at constant positions that they read and write."""

    def __init__(self, repeat: SequentialLoop, loops: list[Loop], read_elsewhere: Set[Buffer]):
        self.readers: defaultdict[Load, list[Statement]] = defaultdict(list)
        self.writers: defaultdict[Load, list[Statement]] = defaultdict(list)
        self.changing = {repeat.counter, *writes(repeat)}
        self.read_elsewhere = read_elsewhere
        # The number of the loop of each statement.
        self.loop_of: dict[Statement, int] = {}
        # Accumulations at other positions, and buffers with any other access there.
        self.scattered: defaultdict[Buffer, list[Statement]] = defaultdict(list)
        self.others: set[Buffer] = set()
        for number, loop in enumerate(loops):
            for statement in loop.body:
                self.loop_of[statement] = number
                for part in walk(roots(statement)):
                    if isinstance(part, Load):
                        self._add(self.readers, part, statement)
            for update in updates(loop):
                if isinstance(update, Accumulate) and not _is_constant(update.index):
                    self.scattered[update.buffer].append(update)
                else:
                    self._add(self.writers, Load(update.buffer, update.index), update)

    def _add(
        self, accesses: dict[Load, list[Statement]], element: Load, statement: Statement
    ) -> None:
        accesses[element].append(statement)
        if not _is_constant(element.index):
            self.others.add(element.buffer)

    def total_of(self, carry: Statement) -> _Total | None:
        """Return the total whose value a statement carries to the next step, None if there is none."""
        if not isinstance(carry, Store) or not isinstance(carry.value, Load):
            return None
        total, result = Load(carry.buffer, carry.index), carry.value
        if self.writers[total] != [carry] or self.readers[result] != [carry]:
            return None
        if len(self.writers[result]) != 1 or {total.buffer, result.buffer} & {
            *self.others,
            *self.scattered,
        }:
            return None
        [addition] = self.writers[result]
        if not isinstance(addition, Store) or self.readers[total] != [addition]:
            return None
        if self.loop_of[addition] >= self.loop_of[carry]:
            return None
        sums = self._summed(addition.value, total)
        if not sums or not all(self._is_sum_of_step(x, addition) for x in sums):
            return None
        return _Total([self.writers[x][0] for x in sums], addition, carry)

    def _summed(self, value: Expr, total: Load) -> set[Load]:
        """Return the sums in a value that is a total plus a linear function of sums, empty if it is not."""
        if not isinstance(value, Compute) or not isinstance(value.op, ps.Add):
            return set()
        if value.args.count(total) != 1 or not value.dtype.startswith("float"):
            return set()
        return self._union(x for x in value.args if x is not total)

    def _union(self, exprs: Iterator[Expr]) -> set[Load]:
        found = [self._linear_in(x) for x in exprs]
        return set().union(*found) if all(found) else set()

    def _linear_in(self, expr: Expr) -> set[Load]:
        """Return elements of which an expression is a linear function, without other elements that change; empty if it is not."""
        if isinstance(expr, Load):
            return {expr}
        if not isinstance(expr, Compute):
            return set()
        match expr.op, expr.args:
            case ps.Neg(), [x]:
                return self._linear_in(x)
            case ps.Add() | ps.Sub(), args:
                return self._union(iter(args))
            case ps.Mul(), args:
                factors = [x for x in args if not loaded([x]).isdisjoint(self.changing)]
                return self._linear_in(factors[0]) if len(factors) == 1 else set()
            case ps.TrueDiv() | Quotient(), [x, *divisors]:
                is_constant = loaded(divisors).isdisjoint(self.changing)
                return self._linear_in(x) if is_constant else set()
        return set()

    def _is_sum_of_step(self, element: Load, addition: Statement) -> bool:
        """Return whether an element is set to zero, then gets sums, and then is read by an addition alone."""
        buffer = element.buffer
        if buffer.role is not Role.SCRATCH or buffer in self.others | self.read_elsewhere:
            return False
        written = [*self.writers[element], *self.scattered.get(buffer, ())]
        if self.readers[element] != [addition] or len(written) < 2:
            return False
        zero, *terms = written
        places = [self.loop_of[x] for x in terms]
        return (
            isinstance(zero, Store)
            and isinstance(zero.value, Const)
            and zero.value.value == 0
            and all(isinstance(x, Accumulate) and x.op == ps.add for x in terms)
            and self.loop_of[zero] < min(places)
            and max(places) < self.loop_of[addition]
        )
