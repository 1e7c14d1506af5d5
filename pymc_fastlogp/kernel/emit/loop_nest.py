"""Nests of loops.

The inner axis is vectorized: whole vectors first, then the remainder as one partial vector, which has only some lanes in the domain.
For a static length the remainder is known, and a small remainder takes a narrower vector. The outer axes are plain loops.
Every loop tests its condition at the end. One test before the whole nest excludes empty axes.

The block before a loop is closed only after the loop is complete. Until then loop-invariant code of the body is appended to that block.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce

from llvmlite import ir
from pytensor.scalar.basic import Mul

from pymc_fastlogp.kernel.emit.access_patterns import AccessPatterns
from pymc_fastlogp.kernel.emit.function import Function
from pymc_fastlogp.kernel.emit.library_call import emit_call
from pymc_fastlogp.kernel.emit.reduction import (
    CheckReduction,
    ElementReduction,
    Reduction,
    RunningResult,
)
from pymc_fastlogp.kernel.emit.scatter import emit_scatters
from pymc_fastlogp.kernel.emit.scatter_by_run import Runs, runs_of_scatters
from pymc_fastlogp.kernel.emit.scope import Scope
from pymc_fastlogp.kernel.ir.expressions import Compute, Const, Index, Size
from pymc_fastlogp.kernel.ir.loops import Accumulate, Call, Check, Loop, PrefixSum, Statement, Store
from pymc_fastlogp.kernel.ir.traversal import depends_on, is_call
from pymc_fastlogp.kernel.llvm import I64, Number, as_i64
from pymc_fastlogp.kernel.scalars.cost import TRANSCENDENTAL, arithmetic_cost


def emit_loop(function: Function, loop: Loop, is_repeated: bool = False) -> None:
    """Append a nest of loops to a kernel; ``is_repeated`` says that the nest is within a sequential loop."""
    lengths = [function.length(size) for size in loop.domain]
    if 0 in [length for length in lengths if isinstance(length, int)]:
        return
    patterns = AccessPatterns(loop, is_repeated)
    when = loop.when and Scope(function.builder, function.known, patterns).scalar(loop.when)
    with (
        _conditional(function.builder, when) as runs,
        _conditional(runs, _no_axis_is_empty(runs, lengths)) as inside,
    ):
        function.allocate_scratch(inside, loop)
        _Nest(function, loop, lengths).run(Scope(inside, function.known, patterns))


class _Nest:
    """Code generation for one loop of the program."""

    def __init__(self, function: Function, loop: Loop, lengths: list[Number]):
        self.function = function
        self.loop = loop
        self.lengths = lengths
        # Set when the outermost scope is known.
        self.first: ir.Value | None = None
        self.width = 1 if is_call(loop) else _width(lengths, function.lanes)
        self.reductions: dict[Statement, Reduction | RunningResult] = {}
        self.runs: list[Runs] = []
        self.adds_again = any(_adds_again(statement, len(lengths)) for statement in loop.body)
        self.is_cheap = arithmetic_cost(loop) < TRANSCENDENTAL

    def run(self, scope: Scope) -> None:
        """Append the loops from the level of a scope inward."""
        depth = len(self.lengths)
        if scope.level == 0 and self.loop.first is not None:
            self.first = as_i64(scope.number(self.loop.first))
        if scope.level == depth:
            self.body(scope)
            return
        started = [*self.start_reductions(scope), *self.start_runs(scope)]
        length = self.lengths[scope.level]
        if scope.level < depth - 1:
            with self.counted(scope, scope.builder, length, 1) as inside:
                self.run(inside)
        elif isinstance(length, int):
            self.static_vectors(scope, length)
        else:
            self.vectors(scope, length)
        for each in started:
            each.end(scope)

    def static_vectors(self, scope: Scope, length: int) -> None:
        """Append the inner loop over a static length."""
        rest = length % self.width
        whole = length - rest
        if whole:
            with self.counted(scope, scope.builder, whole, self.width) as inside:
                self.body(inside)
        for start, width, live in self.pieces(whole, rest):
            self.body(self.inside(scope, scope.builder, I64(start), width, live))

    def pieces(self, start: int, rest: int) -> Iterator[tuple[int, int, int | None]]:
        """Yield start, width and live lanes of the vectors that cover a remainder shorter than a vector.

        This is one masked vector, except in cheap loops that add to the same elements in each iteration of an outer loop. There several
        narrower vectors are used: a masked store forwards nothing to the next load, and that delay is about the cost of a vector function.
        """
        if not rest:
            return
        width = _power_of_two(rest)
        if width == rest or not (self.adds_again and self.is_cheap):
            yield start, width, None if width == rest else rest
            return
        yield start, width // 2, None
        yield from self.pieces(start + width // 2, rest - width // 2)

    def vectors(self, scope: Scope, length: ir.Value) -> None:
        """Append the inner loop over a length that is known only at run time."""
        builder = scope.builder
        if _is_multiple(self.loop.domain[-1], self.width):
            with self.counted(scope, builder, length, self.width) as inside:
                self.body(inside)
            return
        rest = builder.and_(length, I64(self.width - 1))
        whole = builder.sub(length, rest)
        with (
            _conditional(builder, _is_positive(builder, whole)) as before,
            self.counted(scope, before, whole, self.width) as inside,
        ):
            self.body(inside)
        with _conditional(builder, _is_positive(builder, rest)) as inside:
            self.body(self.inside(scope, inside, whole, self.width, rest))

    def inside(
        self,
        scope: Scope,
        builder: ir.IRBuilder,
        start: ir.Value,
        width: int = 1,
        live: int | ir.Value | None = None,
    ) -> Scope:
        """Return the scope of the next level, whose first lane is ``start`` indices from the first index."""
        if self.first is not None and scope.level == 0:
            start = builder.add(self.first, start)
        return scope.inside(builder, start, width, live)

    @contextmanager
    def counted(
        self, scope: Scope, before: ir.IRBuilder, stop: Number, step: int
    ) -> Iterator[Scope]:
        """Append a loop over a positive multiple of the step, and yield the scope of its body.

        ``before`` is positioned in the block before the loop, and at exit in the block after the loop.
        """
        if isinstance(stop, int):
            if stop == step:
                yield self.inside(scope, before, I64(0), step)
                return
            stop = I64(stop)
        inside = ir.IRBuilder(before.append_basic_block("loop"))
        i = inside.phi(I64)
        head = inside.block
        yield self.inside(scope, inside, i, step)
        following = inside.add(i, I64(step))
        after = before.append_basic_block("after")
        inside.cbranch(inside.icmp_signed("<", following, stop), head, after)
        i.add_incoming(I64(0), before.block)
        i.add_incoming(following, inside.block)
        before.branch(head)
        before.position_at_end(after)

    def start_reductions(self, scope: Scope) -> list[Reduction | RunningResult]:
        """Append the start of the reductions and prefix sums that end in a scope."""
        started: dict[Statement, Reduction | RunningResult] = {
            statement: self.reduction(scope.builder, statement)
            for statement in self.loop.body
            if not isinstance(statement, Store | Call)
            and _reduction_level(scope.patterns, statement) == scope.level
        }
        for each in started.values():
            each.start(scope)
        self.reductions |= started
        return list(started.values())

    def start_runs(self, scope: Scope) -> list[Runs]:
        """Append the start of the scatters whose runs are accumulated in registers, along the inner axis."""
        if scope.level < len(self.lengths) - 1:
            return []
        self.runs = runs_of_scatters(scope, self.loop.body, self.width)
        for each in self.runs:
            each.start(scope)
        return self.runs

    def reduction(
        self, builder: ir.IRBuilder, statement: Accumulate | PrefixSum | Check
    ) -> Reduction | RunningResult:
        """Return the reduction or prefix sum of a statement."""
        if isinstance(statement, PrefixSum):
            return RunningResult(builder, statement)
        if isinstance(statement, Check):
            return CheckReduction(builder, statement, self.width, self.function)
        return ElementReduction(builder, statement, self.width)

    def body(self, scope: Scope) -> None:
        """Append the statements for the lanes of the innermost scope."""
        scatters: list[Accumulate] = []
        for statement in self.loop.body:
            if statement in self.reductions:
                self.reductions[statement].add(scope)
            elif isinstance(statement, Check):
                truth = scope.value(statement.condition)
                self.function.require(scope.builder, truth, statement.status)
            elif isinstance(statement, Store):
                value = scope.broadcast(statement.value)
                scope.store(statement.buffer, statement.index, value)
            elif isinstance(statement, Call):
                emit_call(scope, statement)
            elif isinstance(statement, Accumulate):
                scatters.append(statement)
        for runs in self.runs:
            runs.add(scope)
        in_runs = {statement for runs in self.runs for statement in runs.statements}
        emit_scatters(scope, [statement for statement in scatters if statement not in in_runs])


def _adds_again(statement: Statement, depth: int) -> bool:
    """Return whether a statement adds to neighbors along the inner axis, and to the same ones again in an outer loop."""
    if not isinstance(statement, Accumulate) or Index(depth - 1) not in statement.index:
        return False
    return not all(depends_on(statement.index, Index(axis)) for axis in range(depth - 1))


def _reduction_level(
    patterns: AccessPatterns, statement: Accumulate | PrefixSum | Check
) -> int | None:
    """Return the level at which the element of a reduction is known, None for a scatter."""
    if isinstance(statement, PrefixSum):
        return patterns.depth - 1
    if isinstance(statement, Check):
        return 0
    return patterns.level_of(statement.index) if patterns.is_uniform(statement.index) else None


def _width(lengths: list[Number], most: int) -> int:
    """Return the number of lanes of the vectors along the inner axis."""
    if not lengths:
        return 1
    inner = lengths[-1]
    return min(most, _power_of_two(inner)) if isinstance(inner, int) else most


def _is_multiple(size: Size, width: int) -> bool:
    """Return whether a length is a product with a multiple of a number of lanes."""
    if not isinstance(size, Compute) or not isinstance(size.op, Mul):
        return False
    return any(isinstance(x, Const) and x.value % width == 0 for x in size.args)


def _power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least ``n``."""
    return 1 << (n - 1).bit_length()


@contextmanager
def _conditional(builder: ir.IRBuilder, condition: ir.Value | None) -> Iterator[ir.IRBuilder]:
    """Append code that runs if a condition holds, and yield its builder; None stands for true."""
    if condition is None:
        yield builder
        return
    inside = ir.IRBuilder(builder.append_basic_block("if"))
    head = inside.block
    yield inside
    after = builder.append_basic_block("endif")
    inside.branch(after)
    builder.cbranch(condition, head, after)
    builder.position_at_end(after)


def _no_axis_is_empty(builder: ir.IRBuilder, lengths: list[Number]) -> ir.Value | None:
    """Return whether all lengths are positive, None if all lengths are static."""
    tests = [_is_positive(builder, n) for n in lengths if not isinstance(n, int)]
    return reduce(builder.and_, tests) if tests else None


def _is_positive(builder: ir.IRBuilder, length: ir.Value) -> ir.Value:
    return builder.icmp_signed(">", length, I64(0))
