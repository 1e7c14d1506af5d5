"""Scatters: accumulation in elements that differ from lane to lane, and the choice of its implementation.

================================================== =====================================================
index                                              implementation
================================================== =====================================================
known to differ between any two lanes              vectors: load or gather, combine, store or scatter
constant, with runs as long as a vector            registers, see :mod:`pymc_fastlogp.kernel.emit.scatter_by_run`
other constant                                     lane by lane, see :mod:`pymc_fastlogp.kernel.emit.scatter_by_lane`
data, and the same in all lanes of this vector     registers, and one update of memory per vector
other data                                         lane by lane
================================================== =====================================================

The first row that applies is chosen. An index differs between any two lanes if it is affine in the inner index. On CPUs whose gather and
scatter instructions are used, the same holds for a constant whose equal elements are at least a vector length from each other. The fourth row
is decided by a test at run time, for each vector.

Lane by lane, equal indices form a dependency chain: each load waits for the preceding store to the same address. Rows
sorted by group take more than twice as long as rows in random order, unless runs are accumulated in registers. That makes sorted rows
the fastest. The end of a run flushes the registers, which costs about the gain of a run that is as long as a vector. A test that fails
costs up to a quarter of a cheap row. ``docs/kernel/scatter.md`` has the measurements.
"""

from collections.abc import Sequence

from pymc_fastlogp.kernel.emit import memory
from pymc_fastlogp.kernel.emit.accumulators import combine, combine_lanes
from pymc_fastlogp.kernel.emit.repeated_indices import all_lanes, are_equal
from pymc_fastlogp.kernel.emit.scatter_by_lane import scatter_by_lane
from pymc_fastlogp.kernel.emit.scope import Scope
from pymc_fastlogp.kernel.ir.expressions import Expr
from pymc_fastlogp.kernel.ir.loops import Accumulate
from pymc_fastlogp.kernel.llvm import is_vector, lane


def emit_scatters(scope: Scope, statements: Sequence[Accumulate]) -> None:
    """Append all scatters of a loop that are not accumulated by run."""
    tested: dict[tuple[Expr, ...], list[Accumulate]] = {}
    by_lane: list[Accumulate] = []
    for statement in statements:
        if _lanes_differ(scope, statement):
            _as_vectors(scope, statement)
        elif scope.live is None and statement.neighbors is None:
            tested.setdefault(statement.index, []).append(statement)
        else:
            by_lane.append(statement)
    for index, together in tested.items():
        _by_run_or_lane(scope, index, together)
    if by_lane:
        scatter_by_lane(scope, by_lane)


def _lanes_differ(scope: Scope, statement: Accumulate) -> bool:
    """Return whether no two lanes accumulate in the same element."""
    known = statement.neighbors
    is_apart = known is not None and known.gap >= scope.width and scope.known.uses_gathers
    return scope.width == 1 or is_apart or scope.patterns.is_injective(statement.index)


def _as_vectors(scope: Scope, statement: Accumulate) -> None:
    """Append a vectorized accumulation, for lanes with distinct elements."""
    buffer, index = statement.buffer, statement.index
    before = scope.load(buffer, index)
    after = combine(statement.op, buffer.dtype, before, scope.broadcast(statement.value))
    scope.store(buffer, index, after)


def _by_run_or_lane(
    scope: Scope, index: tuple[Expr, ...], statements: Sequence[Accumulate]
) -> None:
    """Append accumulations with a common index: in registers if the index is the same in all lanes, else lane by lane."""
    builder = scope.builder
    indices = [scope.index(expr) for expr in index]
    first = [lane(builder, i, 0) if is_vector(i) else i for i in indices]
    # A value that is first evaluated in one of two branches is not defined after the branches.
    values = [scope.broadcast(statement.value) for statement in statements]
    varying = [(i, j) for i, j in zip(indices, first) if is_vector(i)]
    is_first = are_equal(builder, *zip(*varying))
    with builder.if_else(all_lanes(is_first)) as (is_run, is_not):
        with is_run:
            for statement, lanes in zip(statements, values):
                op, array = statement.op, scope.known.arrays[statement.buffer]
                total = combine_lanes(op, array.dtype, lanes)
                memory.update_one(builder, array, array.address(builder, first), op, total)
        with is_not:
            scatter_by_lane(scope, statements)
