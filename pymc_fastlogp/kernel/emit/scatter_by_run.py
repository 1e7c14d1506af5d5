"""Accumulation in elements that change seldom from lane to lane: in registers, and once in memory for each run.

With ``i`` the index and ``v`` the values of a vector of rows:

.. code-block:: text

    every i is current                partial = op(partial, v)
    every i is current or the last    partial = op(partial, v where i is current)
                                      y[current] = op(y[current], lanes of partial)
                                      current, partial = the last i, v where i is the last
    otherwise                         lane by lane, in memory

and at the end ``partial`` is added to memory once more. This is right for any index; it is fast where most vectors
are of one run or two. The first ``current`` is element 0, which gets the identity of the operation.
"""

from collections.abc import Sequence

from llvmlite import ir

from pymc_fastlogp.kernel.emit import memory
from pymc_fastlogp.kernel.emit.accumulators import combine, combine_lanes, identity
from pymc_fastlogp.kernel.emit.idioms import I64, Number, lane, stack_variable
from pymc_fastlogp.kernel.emit.lane_patterns import Pattern
from pymc_fastlogp.kernel.emit.repeated_indices import are_equal, hold_in_all
from pymc_fastlogp.kernel.emit.scatter_by_lane import lane_by_lane
from pymc_fastlogp.kernel.emit.scope import Scope
from pymc_fastlogp.kernel.ir.expressions import Expr
from pymc_fastlogp.kernel.ir.loops import Accumulate, Statement
from pymc_fastlogp.kernel.vecmath.vector import Lanes, Mask


class Runs:
    """The current element of scatters with a common index, and their partial results in each lane.

    Parameters
    ----------
    scope : Scope
        Around the inner loop.
    statements : sequence of Accumulate
        The scatters.
    width : int
        Lanes of the partial results.

    Attributes
    ----------
    statements : sequence of Accumulate
        The scatters.
    """

    def __init__(self, scope: Scope, statements: Sequence[Accumulate], width: int):
        self.statements = statements
        self._width = width
        self._current = {
            expr: stack_variable(scope.builder, I64)
            for expr in statements[0].index
            if not scope.pattern.is_uniform((expr,))
        }
        self._partials = [_Partial(scope.builder, each, width) for each in statements]

    def start(self, scope: Scope) -> None:
        """Append what makes element 0 the current one."""
        for variable in self._current.values():
            scope.builder.store(I64(0), variable)
        for partial in self._partials:
            partial.set(partial.identity(scope.builder))

    def add(self, scope: Scope) -> None:
        """Append the accumulation of a vector of rows."""
        if scope.live is not None or scope.width < self._width:
            lane_by_lane(scope, self.statements)
            return
        builder = scope.builder
        # What is first evaluated in one of several branches is not known after them.
        values = [scope.spread(each.value) for each in self.statements]
        indices = [scope.index(expr) for expr in self._current]
        is_current = are_equal(builder, indices, self._load_current(builder))
        with builder.if_else(hold_in_all(is_current)) as (in_run, at_end_of_run):
            with in_run:
                for partial, value in zip(self._partials, values):
                    partial.add(value)
            with at_end_of_run:
                self._add_to_two(scope, indices, values, is_current)

    def end(self, scope: Scope) -> None:
        """Append the last accumulation in memory."""
        current = dict(zip(self._current, self._load_current(scope.builder)))
        for partial in self._partials:
            index = [current.get(i) or scope.number(i) for i in partial.statement.index]
            partial.flush(scope, index)

    def _add_to_two(
        self,
        scope: Scope,
        indices: Sequence[ir.Value],
        values: Sequence[Lanes],
        is_current: Mask,
    ) -> None:
        """Append the accumulation of a vector in which the current run ends, or has ended before."""
        builder = scope.builder
        last = [lane(builder, i, self._width - 1) for i in indices]
        is_last = are_equal(builder, indices, last)
        with builder.if_else(hold_in_all(is_current | is_last)) as (of_two, of_several):
            with of_two:
                for partial, value in zip(self._partials, values):
                    partial.add(partial.where(is_current, value))
                self.end(scope)
                for variable, index in zip(self._current.values(), last):
                    builder.store(index, variable)
                for partial, value in zip(self._partials, values):
                    partial.set(partial.where(is_last, value))
            with of_several:
                lane_by_lane(scope, self.statements)

    def _load_current(self, builder: ir.IRBuilder) -> list[ir.Value]:
        return [builder.load(variable, typ=I64) for variable in self._current.values()]


class _Partial:
    """The partial results of one scatter; the variable on the stack becomes a register."""

    def __init__(self, builder: ir.IRBuilder, statement: Accumulate, width: int):
        self.statement = statement
        self._width = width
        self._variable = stack_variable(builder, self.identity(builder).value.type)

    def identity(self, builder: ir.IRBuilder) -> Lanes:
        """Return what leaves every value as it is."""
        op, dtype = self.statement.op, self.statement.buffer.dtype
        return identity(builder, op, dtype, self._width)

    def where(self, mask: Mask, value: Lanes) -> Lanes:
        """Return a value in some lanes, and the identity in the others."""
        return mask.choose(value, self.identity(value.builder))

    def set(self, value: Lanes) -> None:
        """Append what makes a value the partial result."""
        value.builder.store(value.value, self._variable)

    def add(self, value: Lanes) -> None:
        """Append the accumulation of one vector."""
        op, dtype = self.statement.op, self.statement.buffer.dtype
        self.set(combine(op, dtype, self._get(value.builder), value))

    def flush(self, scope: Scope, index: Sequence[Number]) -> None:
        """Append the accumulation of all lanes in an element of memory."""
        builder, op = scope.builder, self.statement.op
        array = scope.known.arrays[self.statement.buffer]
        result = combine_lanes(op, array.dtype, self._get(builder))
        memory.update_one(builder, array, array.address(builder, index), op, result)

    def _get(self, builder: ir.IRBuilder) -> Lanes:
        like = self.identity(builder)
        return type(like)(builder, builder.load(self._variable, typ=like.value.type))


def of_scatters(scope: Scope, body: Sequence[Statement], width: int) -> list[Runs]:
    """Return the runs of those statements for which registers pay, those with a common index together."""
    by_index: dict[tuple[Expr, ...], list[Accumulate]] = {}
    for statement in body:
        if isinstance(statement, Accumulate) and _pays(scope.pattern, statement, width):
            by_index.setdefault(statement.index, []).append(statement)
    return [Runs(scope, together, width) for together in by_index.values()]


def _pays(pattern: Pattern, statement: Accumulate, width: int) -> bool:
    """Whether runs are as long as a vector, which is not a single lane."""
    known, index = statement.neighbours, statement.index
    if known is None or width == 1 or pattern.is_uniform(index) or pattern.is_injective(index):
        return False
    return known.run >= width
