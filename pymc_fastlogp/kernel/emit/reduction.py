"""Reductions and prefix sums, whose partial results stay in registers.

In a reduction each lane has its own partial result, from the level at which the element is known. A sum over
all axes is combined once, after the outermost loop. Lanes outside the domain contribute the identity of
the operation. At the end, halves of the vector are combined until one lane is left. With W lanes the error of a sum of n terms
grows with n / W + log2(W) instead of n.

A prefix sum stores a running result for each index of the inner axis. Its values are computed as vectors, and only the operation
itself is a chain from one lane to the next.

A partial result is a variable on the stack, which LLVM promotes to a register.
"""

from llvmlite import ir
from pytensor.scalar.basic import ScalarOp, and_

from pymc_fastlogp.kernel.emit.accumulators import Accumulator, combine, identity
from pymc_fastlogp.kernel.emit.function import Function
from pymc_fastlogp.kernel.emit.memory import update_one
from pymc_fastlogp.kernel.emit.scope import Scope
from pymc_fastlogp.kernel.ir.expressions import Expr
from pymc_fastlogp.kernel.ir.loops import Accumulate, Check, PrefixSum
from pymc_fastlogp.kernel.llvm import I32, lane, shuffle, splat
from pymc_fastlogp.kernel.vecmath.vector import Lanes


class Reduction:
    """Reduction of an expression over the loops inside the scope in which the reduction starts.

    Its accumulator has at least as many lanes as the scopes that add to it. A subclass says in :meth:`finish` what uses the result.
    """

    def __init__(self, builder: ir.IRBuilder, value: Expr, op: ScalarOp, width: int):
        self.value = value
        self.accumulator = Accumulator.new(builder, op, value.dtype, width)

    def start(self, scope: Scope) -> None:
        """Append the reset of all partial results to the identity."""
        self.accumulator.reset(scope.builder)

    def add(self, scope: Scope) -> None:
        """Append the accumulation of the value of each lane in the domain."""
        value, mask = scope.broadcast(self.value), scope.mask()
        if mask is not None:
            value = mask.choose(value, self._identity(scope))
        width = self.accumulator.width
        if scope.width < width:
            rest = self._identity(scope).value
            lanes = [min(i, scope.width) for i in range(width)]
            value = type(value)(scope.builder, shuffle(scope.builder, value.value, rest, lanes))
        self.accumulator.add(value)

    def end(self, scope: Scope) -> None:
        """Append the combination of the lanes and the use of the result."""
        self.finish(scope, self.accumulator.total(scope.builder))

    def finish(self, scope: Scope, result: Lanes) -> None:
        """Append the use of the result, which has one lane."""
        raise NotImplementedError

    def _identity(self, scope: Scope) -> Lanes:
        return identity(scope.builder, self.accumulator.op, self.value.dtype, scope.width)


class ElementReduction(Reduction):
    """Accumulation in one element of a buffer."""

    def __init__(self, builder: ir.IRBuilder, statement: Accumulate, width: int):
        super().__init__(builder, statement.value, statement.op, width)
        self.statement = statement

    def finish(self, scope: Scope, result: Lanes) -> None:
        """Append the update of the element."""
        statement = self.statement
        array = scope.known.arrays[statement.buffer]
        address = scope.address(statement.buffer, statement.index)
        update_one(scope.builder, array, address, statement.op, result)


class CheckReduction(Reduction):
    """Conjunction of the condition of a check over all indices."""

    def __init__(self, builder: ir.IRBuilder, statement: Check, width: int, function: Function):
        super().__init__(builder, statement.condition, and_, width)
        self.statement = statement
        self._function = function

    def finish(self, scope: Scope, result: Lanes) -> None:
        """Append an exit of the function for a condition that is false."""
        self._function.require(scope.builder, result, self.statement.status)


class RunningResult:
    """Running result of a prefix sum, in one lane."""

    def __init__(self, builder: ir.IRBuilder, statement: PrefixSum):
        self.statement = statement
        self.accumulator = Accumulator.new(builder, statement.op, statement.buffer.dtype, 1)

    def start(self, scope: Scope) -> None:
        """Append the reset to the identity, at the start of the inner axis."""
        self.accumulator.reset(scope.builder)

    def add(self, scope: Scope) -> None:
        """Append the computation and the stores of the results of all lanes."""
        statement, builder = self.statement, scope.builder
        values = scope.broadcast(statement.value)
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
