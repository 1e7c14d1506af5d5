"""Scans: running results along the inner axis, lane after lane.

The values are computed as vectors; only the operation itself is a chain from one lane to the next.
"""

from dataclasses import dataclass

from llvmlite import ir

from pymc_fastlogp.kernel.emit.accumulators import Accumulator, combine
from pymc_fastlogp.kernel.emit.scope import Scope
from pymc_fastlogp.kernel.ir.loops import PrefixSum
from pymc_fastlogp.kernel.llvm import I32, lane, splat


@dataclass(frozen=True, eq=False)
class Running:
    """The result so far, in one lane."""

    statement: PrefixSum
    accumulator: Accumulator

    def start(self, scope: Scope) -> None:
        """Append what starts a line along the inner axis."""
        self.accumulator.reset(scope.builder)

    def add(self, scope: Scope) -> None:
        """Append what computes and stores the results of all lanes."""
        statement, builder = self.statement, scope.builder
        values = scope.spread(statement.value)
        form, results = type(values), values.value
        running = self.accumulator.get(builder)
        for position in range(scope.width):
            value = form(builder, splat(builder, lane(builder, values.value, position), 1))
            running = combine(statement.op, statement.buffer.dtype, running, value)
            result = lane(builder, running.value, 0)
            results = builder.insert_element(results, result, I32(position))
        self.accumulator.set(running)
        scope.store(statement.buffer, statement.index, form(builder, results))

    def end(self, scope: Scope) -> None:
        """Append nothing: all results are stored."""


def of_scan(builder: ir.IRBuilder, statement: PrefixSum) -> Running:
    """Return the running result of a scan."""
    accumulator = Accumulator.new(builder, statement.op, statement.buffer.dtype, 1)
    return Running(statement, accumulator)
