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
from pytensor.scalar.basic import ScalarOp, and_

from pymc_fastlogp.kernel.emit.accumulators import combine, combine_lanes, identity
from pymc_fastlogp.kernel.emit.idioms import shuffle, stack_variable
from pymc_fastlogp.kernel.emit.memory import first_address, update_one
from pymc_fastlogp.kernel.emit.scope import Scope
from pymc_fastlogp.kernel.ir.expressions import Expr
from pymc_fastlogp.kernel.ir.loops import Accumulate, Check
from pymc_fastlogp.kernel.vecmath.vector import Lanes

Finish = Callable[[Scope, Lanes], None]


@dataclass(frozen=True, eq=False)
class Reduction:
    """Partial results in registers.

    Attributes
    ----------
    op : ScalarOp
        What combines two values.
    value : Expr
        What is accumulated.
    width : int
        Lanes of the partial results, at least those of the scopes that add to it.
    variable : llvmlite.ir.Value
        Their place on the stack.
    finish : callable
        What is done with the result, one lane, after the loops inside the scope in which it started.
    """

    op: ScalarOp
    value: Expr
    width: int
    variable: ir.Value
    finish: Finish

    def start(self, scope: Scope) -> None:
        """Append what makes all partial results the identity."""
        scope.builder.store(self._identity(scope.builder, self.width).value, self.variable)

    def add(self, scope: Scope) -> None:
        """Append what accumulates the value of each lane in the domain."""
        value, mask = scope.spread(self.value), scope.mask()
        builder = scope.builder
        if mask is not None:
            value = mask.choose(value, self._identity(builder, scope.width))
        if scope.width < self.width:
            rest = self._identity(builder, scope.width).value
            lanes = [min(i, scope.width) for i in range(self.width)]
            value = type(value)(builder, shuffle(builder, value.value, rest, lanes))
        total = combine(self.op, self.value.dtype, self._partial(builder), value)
        builder.store(total.value, self.variable)

    def end(self, scope: Scope) -> None:
        """Append what combines the lanes and what is done with the result."""
        partial = self._partial(scope.builder)
        self.finish(scope, combine_lanes(self.op, self.value.dtype, partial))

    def _identity(self, builder: ir.IRBuilder, width: int) -> Lanes:
        return identity(builder, self.op, self.value.dtype, width)

    def _partial(self, builder: ir.IRBuilder) -> Lanes:
        like = self._identity(builder, self.width)
        return type(like)(builder, builder.load(self.variable, typ=like.value.type))


def of_accumulate(builder: ir.IRBuilder, statement: Accumulate, width: int) -> Reduction:
    """Return the reduction that accumulates in one element."""

    def finish(scope: Scope, result: Lanes) -> None:
        array = scope.known.arrays[statement.buffer]
        address = first_address(scope, statement.buffer, statement.index)
        update_one(scope.builder, array, address, statement.op, result)

    return _reduction(builder, statement.op, statement.value, width, finish)


def of_check(
    builder: ir.IRBuilder,
    statement: Check,
    width: int,
    require: Callable[[ir.IRBuilder, Lanes, int], None],
) -> Reduction:
    """Return the reduction that requires a condition to hold everywhere."""

    def finish(scope: Scope, result: Lanes) -> None:
        require(scope.builder, result, statement.status)

    return _reduction(builder, and_, statement.condition, width, finish)


def _reduction(
    builder: ir.IRBuilder, op: ScalarOp, value: Expr, width: int, finish: Finish
) -> Reduction:
    vector = identity(builder, op, value.dtype, width).value.type
    return Reduction(op, value, width, stack_variable(builder, vector), finish)
