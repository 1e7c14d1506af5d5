"""Scatters by run: elements that seldom change from lane to lane are accumulated in registers, with one memory update per run.

With ``i`` the index and ``v`` the values of a vector of rows:

.. code-block:: text

    every i is current                partial = op(partial, v)
    every i is current or the last    partial = op(partial, v where i is current)
                                      y[current] = op(y[current], lanes of partial)
                                      current, partial = the last i, v where i is the last
    otherwise                         lane by lane, in memory

At the end ``partial`` is added to memory once more. The result is correct for any index. The code is fast if most vectors
contain one run or two. Initially ``current`` is element 0 and ``partial`` is the identity of the operation.
"""

from collections.abc import Sequence

from llvmlite import ir

from pymc_fastlogp.kernel.emit import memory
from pymc_fastlogp.kernel.emit.access_patterns import AccessPatterns
from pymc_fastlogp.kernel.emit.accumulators import Accumulator
from pymc_fastlogp.kernel.emit.repeated_indices import all_lanes, are_equal
from pymc_fastlogp.kernel.emit.scatter_by_lane import scatter_by_lane
from pymc_fastlogp.kernel.emit.scope import Scope
from pymc_fastlogp.kernel.ir.expressions import Expr
from pymc_fastlogp.kernel.ir.loops import Accumulate, Statement
from pymc_fastlogp.kernel.llvm import I64, lane, stack_variable
from pymc_fastlogp.kernel.vecmath.vector import Lanes, Mask


class Runs:
    """State of scatters with a common index: the current element, and the partial results of each lane."""

    def __init__(self, scope: Scope, statements: Sequence[Accumulate], width: int):
        self.statements = statements
        self._width = width
        self._current = {
            expr: stack_variable(scope.builder, I64)
            for expr in statements[0].index
            if not scope.patterns.is_uniform((expr,))
        }
        self._partials = [
            Accumulator.new(scope.builder, each.op, each.buffer.dtype, width) for each in statements
        ]

    def start(self, scope: Scope) -> None:
        """Append the initial state: element 0 is current, and partial results are the identity."""
        for variable in self._current.values():
            scope.builder.store(I64(0), variable)
        for partial in self._partials:
            partial.reset(scope.builder)

    def add(self, scope: Scope) -> None:
        """Append the accumulation of a vector of rows."""
        if scope.live is not None or scope.width < self._width:
            scatter_by_lane(scope, self.statements)
            return
        builder = scope.builder
        # A value that is first evaluated in one of several branches is not defined after the branches.
        values = [scope.broadcast(each.value) for each in self.statements]
        indices = [scope.index(expr) for expr in self._current]
        is_current = are_equal(builder, indices, self._load_current(builder))
        with builder.if_else(all_lanes(is_current)) as (in_run, at_end_of_run):
            with in_run:
                for partial, value in zip(self._partials, values):
                    partial.add(value)
            with at_end_of_run:
                self._add_to_two(scope, indices, values, is_current)

    def end(self, scope: Scope) -> None:
        """Append the update of the current element in memory."""
        builder = scope.builder
        current = dict(zip(self._current, self._load_current(builder)))
        for partial, statement in zip(self._partials, self.statements):
            index = [current.get(i) or scope.number(i) for i in statement.index]
            array, total = scope.known.arrays[statement.buffer], partial.total(builder)
            memory.update_one(builder, array, array.address(builder, index), partial.op, total)

    def _add_to_two(
        self,
        scope: Scope,
        indices: Sequence[ir.Value],
        values: Sequence[Lanes],
        is_current: Mask,
    ) -> None:
        """Append the accumulation of a vector that is not all in the current run."""
        builder = scope.builder

        def where(mask: Mask, value: Lanes, partial: Accumulator) -> Lanes:
            return mask.choose(value, partial.identity(builder))

        last = [lane(builder, i, self._width - 1) for i in indices]
        is_last = are_equal(builder, indices, last)
        with builder.if_else(all_lanes(is_current | is_last)) as (of_two, of_several):
            with of_two:
                for partial, value in zip(self._partials, values):
                    partial.add(where(is_current, value, partial))
                self.end(scope)
                for variable, index in zip(self._current.values(), last):
                    builder.store(index, variable)
                for partial, value in zip(self._partials, values):
                    partial.set(where(is_last, value, partial))
            with of_several:
                scatter_by_lane(scope, self.statements)

    def _load_current(self, builder: ir.IRBuilder) -> list[ir.Value]:
        return [builder.load(variable, typ=I64) for variable in self._current.values()]


def runs_of_scatters(scope: Scope, body: Sequence[Statement], width: int) -> list[Runs]:
    """Group the scatters to accumulate by run, by their index."""
    by_index: dict[tuple[Expr, ...], list[Accumulate]] = {}
    for statement in body:
        if isinstance(statement, Accumulate) and _pays(scope.patterns, statement, width):
            by_index.setdefault(statement.index, []).append(statement)
    return [Runs(scope, together, width) for together in by_index.values()]


def _pays(patterns: AccessPatterns, statement: Accumulate, width: int) -> bool:
    """Return whether runs are on average at least as long as a vector of several lanes."""
    known, index = statement.neighbors, statement.index
    if known is None or width == 1 or patterns.is_uniform(index) or patterns.is_injective(index):
        return False
    return known.run >= width
