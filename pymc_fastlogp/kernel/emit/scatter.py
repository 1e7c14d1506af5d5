"""Accumulation in elements that differ from lane to lane: the choice of how, and what needs no turns.

============================================== =====================================================
the index                                      is accumulated
============================================== =====================================================
is known to be another one in each lane        as vectors: load or gather, combine, store or scatter
is data, and happens to be the same everywhere in registers, and once in memory
is data                                        lane by lane, see :mod:`pymc_fastlogp.kernel.emit.turns`
============================================== =====================================================

Whether the second row holds is tested for each vector. Lane by lane, equal indices wait for each other: each
loads what the one before has just stored. Rows that are sorted by group cost more than twice as much as in
random order, unless runs go through registers, which makes them the cheapest. The test and its branch,
which is predicted well where no vector or every vector is of one group, cost a few percent of a cheap loop.
"""

from collections.abc import Sequence
from functools import reduce

from llvmlite import ir

from pymc_fastlogp.kernel.emit import memory
from pymc_fastlogp.kernel.emit.idioms import I1, Number, intrinsic, is_vector, lane, splat
from pymc_fastlogp.kernel.emit.operation import combine, combine_lanes
from pymc_fastlogp.kernel.emit.scope import Scope
from pymc_fastlogp.kernel.emit.turns import lane_by_lane
from pymc_fastlogp.kernel.loops import Accumulate, Expr


def emit_scatters(scope: Scope, statements: Sequence[Accumulate]) -> None:
    """Append all scatters of a loop."""
    by_index: dict[tuple[Expr, ...], list[Accumulate]] = {}
    for statement in statements:
        if scope.width == 1 or scope.pattern.is_injective(statement.index):
            _as_vectors(scope, statement)
        else:
            by_index.setdefault(statement.index, []).append(statement)
    for index, together in by_index.items():
        if scope.live is None:
            _run_or_turns(scope, index, together)
        else:
            lane_by_lane(scope, together)


def _as_vectors(scope: Scope, statement: Accumulate) -> None:
    """Append an accumulation in an element of its own in each lane."""
    buffer, index = statement.buffer, statement.index
    before = memory.load(scope, buffer, index)
    after = combine(statement.op, buffer.dtype, before, scope.spread(statement.value))
    memory.store(scope, buffer, index, after)


def _run_or_turns(scope: Scope, index: tuple[Expr, ...], statements: Sequence[Accumulate]) -> None:
    """Append accumulations with a common index, in registers if it is the same in all lanes."""
    builder = scope.builder
    indices = [scope.index(expr) for expr in index]
    first = [lane(builder, i, 0) if is_vector(i) else i for i in indices]
    # What is first evaluated in one of two branches is not known after them.
    values = [scope.spread(statement.value) for statement in statements]
    with builder.if_else(_is_one_run(builder, indices, first)) as (is_run, is_not):
        with is_run:
            for statement, lanes in zip(statements, values):
                op, array = statement.op, scope.known.arrays[statement.buffer]
                total = combine_lanes(op, array.dtype, lanes)
                memory.update_one(builder, array, array.address(builder, first), op, total)
        with is_not:
            lane_by_lane(scope, statements)


def _is_one_run(
    builder: ir.IRBuilder, indices: Sequence[Number], first: Sequence[Number]
) -> ir.Value:
    """Return whether all lanes of an index are as the first one."""
    equal = reduce(
        builder.and_,
        [
            builder.icmp_signed("==", vector, splat(builder, scalar, vector.type.count))
            for vector, scalar in zip(indices, first)
            if is_vector(vector)
        ],
    )
    name = f"llvm.vector.reduce.and.v{equal.type.count}i1"
    return builder.call(intrinsic(builder.module, name, I1, [equal.type]), [equal])
