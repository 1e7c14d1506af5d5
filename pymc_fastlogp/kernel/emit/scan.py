"""Scans: running results along the inner axis, lane after lane.

The values are computed as vectors; only the operation itself is a chain from one lane to the next.
"""

from dataclasses import dataclass

from llvmlite import ir

from pymc_fastlogp.kernel.emit import memory
from pymc_fastlogp.kernel.emit.accumulators import combine, identity
from pymc_fastlogp.kernel.emit.idioms import I32, lane, splat, stack_variable
from pymc_fastlogp.kernel.emit.scope import Scope
from pymc_fastlogp.kernel.ir.loops import Scan


@dataclass(frozen=True, eq=False)
class Running:
    """The result so far, one lane.

    Attributes
    ----------
    statement : Scan
        What is computed.
    variable : llvmlite.ir.Value
        Its place on the stack.
    """

    statement: Scan
    variable: ir.Value

    def start(self, scope: Scope) -> None:
        """Append what starts a line along the inner axis."""
        op, dtype = self.statement.op, self.statement.buffer.dtype
        scope.builder.store(identity(scope.builder, op, dtype, 1).value, self.variable)

    def add(self, scope: Scope) -> None:
        """Append what computes and stores the results of all lanes."""
        statement, builder = self.statement, scope.builder
        dtype = statement.buffer.dtype
        values = scope.spread(statement.value)
        form = type(values)
        neutral = identity(builder, statement.op, dtype, 1)
        running = form(builder, builder.load(self.variable, typ=neutral.value.type))
        results = values.value
        for position in range(scope.width):
            value = form(builder, splat(builder, lane(builder, values.value, position), 1))
            running = combine(statement.op, dtype, running, value)
            result = lane(builder, running.value, 0)
            results = builder.insert_element(results, result, I32(position))
        builder.store(running.value, self.variable)
        memory.store(scope, statement.buffer, statement.index, form(builder, results))

    def end(self, scope: Scope) -> None:
        """Append nothing: all results are stored."""


def of_scan(builder: ir.IRBuilder, statement: Scan) -> Running:
    """Return the running result of a scan."""
    like = identity(builder, statement.op, statement.buffer.dtype, 1)
    return Running(statement, stack_variable(builder, like.value.type))
