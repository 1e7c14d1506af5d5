"""Accumulation lane by lane, where lanes may have the same element.

Statements take their turns together, so that their chains of loads and stores overlap. An index that was
loaded from neighbors in memory is loaded once more, as a scalar in each lane: that is cheaper than to take
a vector to pieces.
"""

from collections.abc import Sequence

from llvmlite import ir

from pymc_fastlogp.kernel.emit import memory
from pymc_fastlogp.kernel.emit.scope import Scope
from pymc_fastlogp.kernel.ir.loops import Accumulate
from pymc_fastlogp.kernel.llvm import I64, splat
from pymc_fastlogp.kernel.vecmath.vector import Lanes


def lane_by_lane(scope: Scope, statements: Sequence[Accumulate]) -> None:
    """Append accumulations in the lanes of the domain, in their order."""
    turns = [_Turn(scope, statement) for statement in statements]
    if scope.live is None or isinstance(scope.live, int):
        for number in range(scope.live or scope.width):
            _take(scope, turns, I64(number))
    else:
        _take_in_a_loop(scope, turns, scope.live)


class _Turn:
    """Accumulation of one statement, lane by lane."""

    def __init__(self, scope: Scope, statement: Accumulate):
        self.statement = statement
        self.array = scope.known.arrays[statement.buffer]
        self.values: Lanes = scope.spread(statement.value)
        self.addresses: ir.Value | None = None
        # One lane alone has one address, and no vector of them.
        if scope.width > 1 and not scope.is_cheap_by_lane(statement.index):
            self.addresses = scope.addresses(statement.buffer, statement.index)

    def take(self, lane: Scope, number: ir.Value) -> None:
        """Append the accumulation of one lane."""
        builder = lane.builder
        address = self._address(lane, number)
        value = splat(builder, builder.extract_element(self.values.value, number), 1)
        one = type(self.values)(builder, value)
        memory.update_one(builder, self.array, address, self.statement.op, one)

    def _address(self, lane: Scope, number: ir.Value) -> ir.Value:
        if self.addresses is not None:
            return lane.builder.extract_element(self.addresses, number)
        return lane.address(self.statement.buffer, self.statement.index)


def _take(scope: Scope, turns: Sequence[_Turn], number: ir.Value) -> None:
    lane = scope.lane(number)
    for turn in turns:
        turn.take(lane, number)


def _take_in_a_loop(scope: Scope, turns: Sequence[_Turn], live: ir.Value) -> None:
    """Append a loop over the lanes of the domain, at least one."""
    builder = scope.builder
    before, head, after = builder.block, *map(builder.append_basic_block, ("lane", "lanes_done"))
    builder.branch(head)
    builder.position_at_end(head)
    number = builder.phi(I64)
    _take(scope, turns, number)
    following = builder.add(number, I64(1))
    number.add_incoming(I64(0), before)
    number.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, live), head, after)
    builder.position_at_end(after)
