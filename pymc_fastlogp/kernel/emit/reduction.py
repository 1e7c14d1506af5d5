"""Reductions: an element that all lanes accumulate in.

Each lane has its own partial result in registers, from the level at which the element is known: a sum over
all axes is combined once, after the outermost loop. Lanes outside of the domain contribute the identity of
the operation. At the end, halves of the vector are combined until one lane is left: a sum of n terms with
W lanes has an error that grows with n / W + log2(W) instead of n.

The partial result is a variable on the stack, which LLVM promotes to a register.
"""

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir
from pytensor.scalar.basic import and_

from pymc_fastlogp.kernel.emit.accumulators import Accumulator, identity
from pymc_fastlogp.kernel.emit.memory import update_one
from pymc_fastlogp.kernel.emit.scope import Scope
from pymc_fastlogp.kernel.ir.expressions import Expr
from pymc_fastlogp.kernel.ir.loops import Accumulate, Check
from pymc_fastlogp.kernel.llvm import shuffle
from pymc_fastlogp.kernel.vecmath.vector import Lanes

Finish = Callable[[Scope, Lanes], None]


@dataclass(frozen=True, eq=False)
class Reduction:
    """Partial results in registers, in at least the lanes of the scopes that add to them.

    After the loops inside the scope in which it started, ``finish`` gets the result, one lane.
    """

    value: Expr
    accumulator: Accumulator
    finish: Finish

    def start(self, scope: Scope) -> None:
        """Append what makes all partial results the identity."""
        self.accumulator.reset(scope.builder)

    def add(self, scope: Scope) -> None:
        """Append what accumulates the value of each lane in the domain."""
        value, mask = scope.spread(self.value), scope.mask()
        if mask is not None:
            value = mask.choose(value, self._identity(scope))
        width = self.accumulator.width
        if scope.width < width:
            rest = self._identity(scope).value
            lanes = [min(i, scope.width) for i in range(width)]
            value = type(value)(scope.builder, shuffle(scope.builder, value.value, rest, lanes))
        self.accumulator.add(value)

    def end(self, scope: Scope) -> None:
        """Append what combines the lanes and what is done with the result."""
        self.finish(scope, self.accumulator.total(scope.builder))

    def _identity(self, scope: Scope) -> Lanes:
        return identity(scope.builder, self.accumulator.op, self.value.dtype, scope.width)


def of_accumulate(builder: ir.IRBuilder, statement: Accumulate, width: int) -> Reduction:
    """Return the reduction that accumulates in one element."""

    def finish(scope: Scope, result: Lanes) -> None:
        array = scope.known.arrays[statement.buffer]
        address = scope.address(statement.buffer, statement.index)
        update_one(scope.builder, array, address, statement.op, result)

    value = statement.value
    return Reduction(value, Accumulator.new(builder, statement.op, value.dtype, width), finish)


def of_check(
    builder: ir.IRBuilder,
    statement: Check,
    width: int,
    require: Callable[[ir.IRBuilder, Lanes, int], None],
) -> Reduction:
    """Return the reduction that requires a condition to hold everywhere."""

    def finish(scope: Scope, result: Lanes) -> None:
        require(scope.builder, result, statement.status)

    return Reduction(statement.condition, Accumulator.new(builder, and_, "bool", width), finish)
