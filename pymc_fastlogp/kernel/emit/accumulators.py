"""Accumulators: partial results of an associative operation, its identity, and the combination of lanes."""

from dataclasses import dataclass
from typing import Self

from llvmlite import ir
from pytensor.scalar.basic import ScalarOp

from pymc_fastlogp.kernel import scalars
from pymc_fastlogp.kernel.ir.arithmetic import neutral
from pymc_fastlogp.kernel.llvm import shuffle, stack_variable
from pymc_fastlogp.kernel.vecmath.vector import Lanes


def identity(builder: ir.IRBuilder, op: ScalarOp, dtype: str, width: int) -> Lanes:
    """Return the identity of an operation in all lanes."""
    return scalars.constant(builder, width, neutral(op, dtype).value, dtype)


def combine(op: ScalarOp, dtype: str, first: Lanes, second: Lanes) -> Lanes:
    """Return the result of an operation on two values, lane by lane."""
    return scalars.emit(op, [first, second], [dtype, dtype], dtype)


def combine_lanes(op: ScalarOp, dtype: str, lanes: Lanes) -> Lanes:
    """Reduce all lanes to one, by combining the halves of the vector repeatedly."""
    form, builder = type(lanes), lanes.builder
    while lanes.width > 1:
        half = lanes.width // 2
        low, high = (
            form(builder, shuffle(builder, lanes.value, lanes.value, part))
            for part in (range(half), range(half, lanes.width))
        )
        lanes = combine(op, dtype, low, high)
    return lanes


@dataclass(frozen=True, eq=False)
class Accumulator:
    """Partial results of an operation, one per lane, in a stack variable that LLVM promotes to a register."""

    op: ScalarOp
    dtype: str
    width: int
    variable: ir.Value

    @classmethod
    def new(cls, builder: ir.IRBuilder, op: ScalarOp, dtype: str, width: int) -> Self:
        """Return an accumulator without an initial value."""
        lanes = identity(builder, op, dtype, width)
        return cls(op, dtype, width, stack_variable(builder, lanes.value.type))

    def identity(self, builder: ir.IRBuilder) -> Lanes:
        """Return the identity of the operation in all lanes."""
        return identity(builder, self.op, self.dtype, self.width)

    def get(self, builder: ir.IRBuilder) -> Lanes:
        """Load the partial results."""
        like = self.identity(builder)
        return type(like)(builder, builder.load(self.variable, typ=like.value.type))

    def set(self, lanes: Lanes) -> None:
        """Store new partial results."""
        lanes.builder.store(lanes.value, self.variable)

    def reset(self, builder: ir.IRBuilder) -> None:
        """Set all partial results to the identity."""
        self.set(self.identity(builder))

    def add(self, lanes: Lanes) -> None:
        """Combine the partial results with one value per lane."""
        self.set(combine(self.op, self.dtype, self.get(lanes.builder), lanes))

    def total(self, builder: ir.IRBuilder) -> Lanes:
        """Return the combined result of all lanes, as one lane."""
        return combine_lanes(self.op, self.dtype, self.get(builder))
