"""Accumulation in elements that differ from lane to lane: the choice of how, and what needs no turns.

============================================== =====================================================
the index                                      is accumulated
============================================== =====================================================
is known to be another one in each lane        as vectors: load or gather, combine, store or scatter
is a constant of runs as long as a vector      in registers, see :mod:`pymc_fastlogp.kernel.emit.scatter_by_run`
is another constant                            lane by lane, see :mod:`pymc_fastlogp.kernel.emit.scatter_by_lane`
is data, and happens to be the same everywhere in registers, and once in memory for each vector
is data                                        lane by lane
============================================== =====================================================

The first that applies is chosen. An index is another one in each lane if it is affine in that of the loop. So is a constant
in which equal elements are no closer than a vector is wide, on a CPU whose gather and scatter instructions are used. Whether
the fourth row holds is tested for each vector.

Lane by lane, equal indices wait for each other: each loads what the one before has just stored. Rows that are
sorted by group cost more than twice as much as in random order, unless runs go through registers, which makes
them the cheapest. Where a run ends, registers are flushed, which costs about what they save if runs are as long as a vector. The test
costs up to a quarter of a cheap row where it is in vain. ``docs/kernel/scatter.md`` has the measurement.
"""

from collections.abc import Sequence

from pymc_fastlogp.kernel.emit import memory
from pymc_fastlogp.kernel.emit.accumulators import combine, combine_lanes
from pymc_fastlogp.kernel.emit.repeated_indices import are_equal, hold_in_all
from pymc_fastlogp.kernel.emit.scatter_by_lane import lane_by_lane
from pymc_fastlogp.kernel.emit.scope import Scope
from pymc_fastlogp.kernel.ir.expressions import Expr
from pymc_fastlogp.kernel.ir.loops import Accumulate
from pymc_fastlogp.kernel.llvm import is_vector, lane


def emit_scatters(scope: Scope, statements: Sequence[Accumulate]) -> None:
    """Append all scatters of a loop, but for those in runs."""
    tested: dict[tuple[Expr, ...], list[Accumulate]] = {}
    in_turns: list[Accumulate] = []
    for statement in statements:
        if _lanes_differ(scope, statement):
            _as_vectors(scope, statement)
        elif scope.live is None and statement.neighbors is None:
            tested.setdefault(statement.index, []).append(statement)
        else:
            in_turns.append(statement)
    for index, together in tested.items():
        _run_or_turns(scope, index, together)
    if in_turns:
        lane_by_lane(scope, in_turns)


def _lanes_differ(scope: Scope, statement: Accumulate) -> bool:
    """Return whether no two lanes accumulate in the same element."""
    known = statement.neighbors
    is_apart = known is not None and known.gap >= scope.width and scope.known.uses_gathers
    return scope.width == 1 or is_apart or scope.patterns.is_injective(statement.index)


def _as_vectors(scope: Scope, statement: Accumulate) -> None:
    """Append an accumulation in an element of its own in each lane."""
    buffer, index = statement.buffer, statement.index
    before = scope.load(buffer, index)
    after = combine(statement.op, buffer.dtype, before, scope.spread(statement.value))
    scope.store(buffer, index, after)


def _run_or_turns(scope: Scope, index: tuple[Expr, ...], statements: Sequence[Accumulate]) -> None:
    """Append accumulations with a common index, in registers if it is the same in all lanes."""
    builder = scope.builder
    indices = [scope.index(expr) for expr in index]
    first = [lane(builder, i, 0) if is_vector(i) else i for i in indices]
    # What is first evaluated in one of two branches is not known after them.
    values = [scope.spread(statement.value) for statement in statements]
    varying = [(i, j) for i, j in zip(indices, first) if is_vector(i)]
    is_first = are_equal(builder, *zip(*varying))
    with builder.if_else(hold_in_all(is_first)) as (is_run, is_not):
        with is_run:
            for statement, lanes in zip(statements, values):
                op, array = statement.op, scope.known.arrays[statement.buffer]
                total = combine_lanes(op, array.dtype, lanes)
                memory.update_one(builder, array, array.address(builder, first), op, total)
        with is_not:
            lane_by_lane(scope, statements)
