r"""Chunks of rows: split long loops into a parallel loop over chunks, and merge the partial results in the order of the chunks.

.. code-block:: text

    loop n:                                 parallel k0 K:
        y[g[i0]] += f(x[i0])                    loop :
        z[] += h(x[i0])                             q[k0] = 0
                                                loop w:
                                        ->          p[k0, i0] = 0
                                                loop s[k0 + 1] - s[k0] from s[k0]:
                                                    p[k0, g[i0] - low] += f(x[i0])
                                                    q[k0] += h(x[i0])
                                            loop K, w:
                                                y[low + i1] += p[i0, i1]
                                            loop K:
                                                z[] += q[i0]

The first rows :math:`s_k` of the chunks depend on the data (:mod:`pymc_fastlogp.analysis.row_chunks`), not on the number of threads. So results are equal bit
for bit for any number of threads, and without threads.

A store needs no partial result, nor does an accumulation whose element differs from row to row by an affine index. A scatter by an ascending index needs
none either if chunks start at group borders. Another scatter needs a window of its target for each chunk: the range ``low, ..., low + w - 1`` of its
index, which is known for constants.

Loops in a row that share no buffers but sums are a *team*: one parallel loop runs a chunk of each, so that threads wait for each other once, and they share
their partial results.

Windows take time without threads, too: each element is set and merged once per chunk. A team is split if this costs at most :data:`MERGING` of its
time. If no team takes :data:`LONG`, all stay whole. Otherwise shorter teams are split, too, in as many chunks: their data are then in the caches of the
threads that need them.

A recursion of many series is split likewise if no step combines series, except for sums. Each chunk runs all steps for its series:

.. code-block:: text

    repeat t n:                             parallel k0 K:
        loop m:                     ->          repeat t n:
            s[t + 1, i0] = f(s[t, i0])              loop s[k0 + 1] - s[k0] from s[k0]:
                                                        s[t + 1, i0] = f(s[t, i0])

A loop with running sums along an inner axis is split like any loop over rows.

A loop over blocks of rows (:mod:`pymc_fastlogp.kernel.passes.row_blocks`) is split likewise, between blocks. The product of rows that is added
to a vector has a partial vector for each chunk.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import gcd, prod
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from pytensor import scalar as ps
from pytensor.scalar.basic import Cast

from pymc_fastlogp.analysis.index_facts import IndexFacts, index_facts
from pymc_fastlogp.analysis.row_chunks import COUNTS, LANES, chunk_starts
from pymc_fastlogp.kernel.ir.affine import affine
from pymc_fastlogp.kernel.ir.arithmetic import (
    ONE,
    ZERO,
    base_and_offset,
    domain_of,
    int64,
    minus,
    neutral,
    plus,
)
from pymc_fastlogp.kernel.ir.expressions import (
    Buffer,
    Compute,
    Const,
    Expr,
    Index,
    Load,
    Role,
    Size,
    itemsize,
)
from pymc_fastlogp.kernel.ir.loops import (
    Accumulate,
    BlockLoop,
    Call,
    Loop,
    ParallelLoop,
    PrefixSum,
    Program,
    SequentialLoop,
    Statement,
    Step,
    Store,
)
from pymc_fastlogp.kernel.ir.substitute import substitute_in_element, substitute_in_loop
from pymc_fastlogp.kernel.ir.traversal import (
    counters,
    depends_on,
    is_call,
    loaded,
    loops_in,
    reads,
    updates,
    writes,
)
from pymc_fastlogp.kernel.passes.fusion_groups import are_independent
from pymc_fastlogp.kernel.passes.row_blocks import (
    OF_MATRICES,
    PRODUCTS,
    SUMS,
    is_by_row,
    may_run_in_parts,
)
from pymc_fastlogp.kernel.scalars.cost import nanoseconds

# Estimated nanoseconds of the longest team of a program with chunks, of any team, and of a chunk of the longest team. A chunk takes up to 0.2 us more
# than its rows, besides its windows.
LONG, SHORT, CHUNK = 40_000, 5_000, 10_000
# Nanoseconds to set one element of a window and to merge it.
ELEMENT = 0.3
# Nanoseconds of one multiplication of a product of rows, most of which are for the load of the matrix.
MULTIPLICATION = 0.15
# Part of this time in a product with a matrix, which multiplies each loaded vector several times.
REUSED = 0.3
# Bytes of a cache line.
LINE = 64
# Largest part of the time of a team for the windows of its chunks.
MERGING = 0.03

# Fewest series of a chunk: a step of a recursion takes the latency of its operations, which vectors of further series hide.
SERIES = 64

ROW = Index(0)

# Steps that may be split.
RowStep = Loop | SequentialLoop
Team = list[RowStep]


def chunk_long_loops(program: Program) -> Program:
    """Split long loops into chunks of rows, and long recursions into chunks of series."""
    parts = _teams(program.steps)
    longest = max((_time(part) for part in parts if isinstance(part, list)), default=0.0)
    if longest < LONG:
        return program
    steps: list[Step] = []
    scratch, constants = [*program.scratch], [*program.constants]
    n_split = 0
    for part in parts:
        for step in _split_team(part, longest, n_split) if isinstance(part, list) else [part]:
            if not isinstance(step, _Split):
                steps.append(step)
                continue
            n_split += 1
            steps += step.steps
            scratch += step.scratch
            constants += step.constants
    if not n_split:
        return program
    return replace(program, steps=tuple(steps), scratch=tuple(scratch), constants=tuple(constants))


def _teams(steps: Sequence[Step]) -> list[Step | Team]:
    """Return steps in an equivalent order, those that one parallel loop may run as a team."""
    parts: list[Step | Team] = []
    team: Team = []
    behind: list[Step] = []
    for step in steps:
        if _is_candidate(step):
            if not (_may_join(team, step) and all(are_independent(x, step) for x in behind)):
                parts += [team, *behind] if team else []
                team, behind = [], []
            team.append(step)
        elif all(are_independent(x, step) for x in (*team, *behind)):
            parts.append(step)
        else:
            behind.append(step)
    return [*parts, team, *behind] if team else parts


def _is_candidate(step: Step) -> TypeGuard[RowStep]:
    """Return whether a step can run in chunks, as far as its lengths and the kinds of its statements decide, and is not too short."""
    if not all(map(_is_splittable, loops_in([step]))):
        return False
    if (
        isinstance(step, SequentialLoop)
        and not isinstance(step, BlockLoop)
        and not _is_of_series(step)
    ):
        return False
    return _n_units(step) >= min(COUNTS) and _time([step]) >= SHORT


def _is_of_series(repeat: SequentialLoop) -> bool:
    """Return whether a sequential loop is a recursion of series, which no step combines except for sums."""
    loops = [step for step in repeat.steps if isinstance(step, Loop)]
    if len(loops) < len(repeat.steps) or not isinstance(repeat.length, int):
        return False
    return (
        len({loop.domain[:1] for loop in loops}) == 1
        and all(may_run_in_parts(statement) for loop in loops for statement in loop.body)
        and is_by_row(loops)
    )


def _may_join(team: Team, step: RowStep) -> bool:
    """Return whether a step and the steps of a team share no buffers but sums, and have the same condition."""
    return all(
        _condition(x) is _condition(step)
        and reads(x).isdisjoint(writes(step))
        and writes(x).isdisjoint(reads(step))
        and all(_adds(x, y) & _adds(step, y) for y in writes(x) & writes(step))
        for x in team
    )


def _condition(step: RowStep) -> Expr | None:
    return step.when if isinstance(step, Loop) else None


def _adds(step: RowStep, buffer: Buffer) -> set[ps.ScalarOp]:
    """Return the operation by which a step accumulates in a buffer; empty if the step writes the buffer otherwise, too."""
    every = [x for loop in loops_in([step]) for x in updates(loop) if x.buffer is buffer]
    operations = {x.op for x in every if isinstance(x, Accumulate)}
    is_sum = all(isinstance(x, Accumulate) for x in every) and len(operations) == 1
    return operations if is_sum else set()


def _time(team: Team) -> float:
    """Return the approximate nanoseconds of steps with static lengths."""
    total = 0.0
    for step in team:
        repeats = step.length if isinstance(step, SequentialLoop) else 1
        assert isinstance(repeats, int)
        total += repeats * sum(map(_nanoseconds, loops_in([step])))
    return total


class _Split(NamedTuple):
    """Steps in place of a team, and their new buffers."""

    steps: list[Step]
    scratch: list[Buffer]
    constants: list[Buffer]


def _split_team(team: Team, longest: float, number: int) -> Sequence["RowStep | _Split"]:
    """Return the chunks of a team, or the chunks of its steps one by one; a step stays whole if it has too many partial results."""
    together = _split(team, longest, number)
    if together is not None or len(team) == 1:
        return [together or team[0]]
    found: list[RowStep | _Split] = []
    for step in team:
        alone = _split([step], longest, number + sum(isinstance(x, _Split) for x in found))
        found.append(alone or step)
    return found


def _split(team: Team, longest: float, number: int) -> _Split | None:
    """Return the chunks of a team, None if it has too many partial results."""
    time = _time(team)
    for count in COUNTS:
        if min(map(_n_units, team)) < count or longest / count < CHUNK:
            continue
        for at_groups in (True, False):
            split = _Chunks(team, count, f"k{number}", at_groups=at_groups).split()
            if split is not None and _merge_time(split) <= MERGING * time:
                return split
    return None


def _merge_time(split: _Split) -> float:
    """Return the approximate nanoseconds for the partial results of all chunks, which have static shapes."""
    merges = (x.domain for x in split.steps if isinstance(x, Loop) for _ in x.body)
    return ELEMENT * sum(prod(n for n in domain if isinstance(n, int)) for domain in merges)


def _n_units(step: RowStep) -> int:
    """Return the largest number of chunks: of whole vectors of rows, of blocks, or of series; 0 if there are no rows, or not a static number."""
    if isinstance(step, BlockLoop):
        return step.length if isinstance(step.length, int) else 0
    [n_rows, *_] = *next(loops_in([step])).domain, 0
    if not isinstance(n_rows, int):
        return 0
    return n_rows // (SERIES if isinstance(step, SequentialLoop) else LANES)


def _n_rows(step: RowStep) -> int:
    """Return the number of rows, which is static."""
    if not isinstance(step, BlockLoop):
        [n_rows, *_] = next(loops_in([step])).domain
        assert isinstance(n_rows, int)
        return n_rows
    calls = (x for loop in loops_in([step]) for x in loop.body if isinstance(x, Call))
    _, of_block, *_ = next(calls).arguments
    assert isinstance(of_block, Const)
    return int(of_block.value) * _n_units(step)


def _is_splittable(loop: Loop) -> bool:
    """Return whether a loop can run in chunks, as far as its lengths and the kinds of its statements decide."""
    is_static = all(isinstance(size, int) for size in loop.domain)
    return is_static and all(
        isinstance(each, Accumulate)
        or (isinstance(each, Store) and not each.in_order)
        or (isinstance(each, Call) and each.function in PRODUCTS)
        or (isinstance(each, PrefixSum) and len(loop.domain) > 1)
        for each in loop.body
    )


def _nanoseconds(loop: Loop) -> float:
    """Return the approximate time of a loop with static lengths."""
    if is_call(loop):
        [call] = loop.body
        assert isinstance(call, Call)
        n_columns, n_rows, *_ = call.arguments
        assert isinstance(n_columns, Const)
        assert isinstance(n_rows, Const)
        time: float = MULTIPLICATION * n_columns.value * n_rows.value
        if call.function in OF_MATRICES:
            n_vectors = call.arguments[-2]
            assert isinstance(n_vectors, Const)
            time *= n_vectors.value * REUSED
        return time
    return nanoseconds(loop) * prod(size for size in loop.domain if isinstance(size, int))


def _source(index: Expr) -> Load | None:
    """Return the element that is an index, up to an offset and its dtype."""
    source, _ = base_and_offset(index)
    if isinstance(source, Compute) and isinstance(source.op, Cast):
        [source] = source.args
    return source if isinstance(source, Load) else None


def _facts(index: Buffer) -> IndexFacts | None:
    """Return the facts about an index, which are not known for scratch buffers."""
    if index.role is Role.CONSTANT:
        return index_facts(np.frombuffer(index.data, index.dtype))
    return index.facts


class _Groups(NamedTuple):
    """Groups of an ascending index, at whose borders chunks start.

    Attributes
    ----------
    of_row : Load
        The group of a row.
    starts : tuple of int
        The first row of each chunk, and the number of rows.
    n_groups : int
        Range of the index.
    """

    of_row: Load
    starts: tuple[int, ...]
    n_groups: int


class _Partial(NamedTuple):
    """Partial results of an accumulation for each chunk.

    Attributes
    ----------
    target : Buffer
        The buffer of the accumulation.
    element : tuple of Expr
        The element of ``target`` for each partial result of a chunk.
    op : ScalarOp
        The operation.
    shape : tuple of Size
        Shape of the partial results of a chunk.
    """

    target: Buffer
    element: tuple[Expr, ...]
    op: ps.ScalarOp
    shape: tuple[Size, ...]


class _Chunks:
    """The split of a team into chunks, which start at group borders if ``at_groups``."""

    def __init__(self, team: Team, count: int, name: str, *, at_groups: bool):
        self.team = team
        self.count = count
        self.counter = Buffer(name, "int64", (), Role.SCRATCH)
        self.chunk = Load(self.counter, ())
        self.at_groups = at_groups
        self.when = _condition(team[0])
        written = Counter(buffer for step in team for buffer in writes(step))
        # Only partial results: a chunk of one step may add to the elements of another chunk of another step.
        self.shared = {buffer for buffer, n_steps in written.items() if n_steps > 1}
        self.partials: dict[_Partial, Buffer] = {}
        self.starts: dict[tuple[int, ...], Buffer] = {}

    def split(self) -> _Split | None:
        """Return the steps in place of the team, None if an accumulation has no window."""
        steps = [self._step(x) for x in self.team]
        known = [step for step in steps if step is not None]
        if len(known) < len(steps):
            return None
        n_rows = sum(map(_n_rows, self.team))
        body = (*self._sets(), *known)
        parallel = ParallelLoop(self.counter, self.count, body, self.when, n_rows)
        scratch = [self.counter, *self.partials.values()]
        return _Split([parallel, *self._merges()], scratch, [*self.starts.values()])

    def _step(self, step: RowStep) -> RowStep | None:
        """Return a step for the rows of a chunk."""
        if isinstance(step, BlockLoop):
            return self._blocks(step)
        if isinstance(step, SequentialLoop):
            return self._series(step)
        return self._rows(step, step, self._groups(step) if self.at_groups else None)

    def _series(self, repeat: SequentialLoop) -> SequentialLoop | None:
        """Return the recursion of the series of a chunk."""
        loops = [self._rows(repeat, loop, None) for loop in loops_in(repeat.steps)]
        known = tuple(loop for loop in loops if loop is not None)
        return replace(repeat, steps=known) if len(known) == len(loops) else None

    def _rows(self, step: RowStep, loop: Loop, groups: _Groups | None) -> Loop | None:
        """Return a loop of a step over the rows of a chunk."""
        body = self._in_chunk(step, loop, groups)
        if body is None:
            return None
        starts = groups.starts if groups else tuple(chunk_starts(_n_rows(loop), self.count))
        first, n_rows = self._first_and_length(starts)
        return replace(loop, domain=(n_rows, *loop.domain[1:]), body=body, first=first)

    def _blocks(self, blocks: BlockLoop) -> BlockLoop | None:
        """Return the loop over the blocks of a chunk."""
        n_blocks = _n_units(blocks)
        starts = tuple(k * n_blocks // self.count for k in range(self.count + 1))
        first_block, n_in_chunk = self._first_and_length(starts)
        number = Load(blocks.counter, ())
        numbers: dict[Expr, Expr] = {number: plus(number, first_block)}
        steps = []
        for loop in loops_in(blocks.steps):
            body = self._in_chunk(blocks, loop, None)
            if body is None:
                return None
            moved = substitute_in_loop(replace(loop, body=body), numbers.get)
            if loop.first is not None:
                [first] = substitute_in_element((loop.first,), numbers.get)
                moved = replace(moved, first=first)
            steps.append(moved)
        return replace(blocks, length=n_in_chunk, steps=tuple(steps))

    def _first_and_length(self, starts: tuple[int, ...]) -> tuple[Expr, Expr]:
        """Return the first row or block of a chunk, and the number of rows or blocks."""
        if starts not in self.starts:
            name, data = f"{self.counter.name}s{len(self.starts)}", np.array(starts, "int64")
            buffer = Buffer(name, "int64", data.shape, Role.CONSTANT, data.tobytes())
            self.starts[starts] = buffer
        first, behind = (
            Load(self.starts[starts], (x,)) for x in (self.chunk, plus(self.chunk, ONE))
        )
        return first, minus(behind, first)

    def _groups(self, loop: Loop) -> _Groups | None:
        """Return the groups of the longest range by which a loop scatters, None if no scatter has an ascending index."""
        found = []
        for statement in loop.body:
            if not isinstance(statement, Accumulate) or statement.buffer in self.shared:
                continue
            for source in map(_source, statement.index):
                facts = _facts(source.buffer) if source and source.index == (ROW,) else None
                starts = facts.chunk_starts(self.count) if facts else ()
                if source and facts and starts:
                    found.append(_Groups(source, starts, facts.maximum - facts.minimum))
        return max(found, key=lambda groups: groups.n_groups, default=None)

    def _in_chunk(
        self, step: RowStep, loop: Loop, groups: _Groups | None
    ) -> tuple[Statement, ...] | None:
        """Return the statements of a loop in a chunk, None if the elements of one are not known."""
        body = [self._statement(step, loop, statement, groups) for statement in loop.body]
        return None if None in body else tuple(x for x in body if x is not None)

    def _statement(
        self, step: RowStep, loop: Loop, statement: Statement, groups: _Groups | None
    ) -> Statement | None:
        """Return a statement of a chunk with the row as index of the whole loop, None if its elements are not known."""
        if isinstance(statement, Call):
            return self._added_rows(statement) if statement.function in SUMS else statement
        if not isinstance(statement, Accumulate):
            return statement
        if statement.buffer not in self.shared and _is_disjoint(loop, statement, groups):
            return statement
        changing = {*writes(step), *counters([step])}
        if not loaded(statement.index).isdisjoint(changing):
            return None
        axes = [axis for axis, i in enumerate(statement.index) if depends_on([i], ROW)]
        if not axes:
            return self._add(loop, statement, None)
        window = _window(statement.index[axes[0]]) if len(axes) == 1 else None
        return None if window is None else self._add(loop, statement, (axes[0], *window))

    def _added_rows(self, call: Call) -> Call:
        """Add the partial results of a product, and return the product in a chunk."""
        # Behind the axis of the chunks.
        (_, *domain), (_, *element) = domain_of((self.count, *call.buffer.shape))
        buffer = self._partial(call.buffer, tuple(element), ps.add, tuple(domain))
        return replace(call, buffer=buffer, index=self._element([ZERO] * len(domain)))

    def _add(
        self, loop: Loop, statement: Accumulate, window: tuple[int, int, int] | None
    ) -> Accumulate:
        """Add the partial results of an accumulation, and return the accumulation in a chunk."""
        axes = map(Index, range(1, len(loop.domain)))
        inner = [axis for axis in axes if depends_on(statement.index, axis)]
        moved: dict[Expr, Expr] = {
            axis: Index(k) for k, axis in enumerate(inner, 1 if window is None else 2)
        }
        target = [*substitute_in_element(statement.index, moved.get)]
        domain = [loop.domain[axis.axis] for axis in inner]
        element: list[Expr] = [*inner]
        if window is not None:
            axis, low, size = window
            base, offset = base_and_offset(statement.index[axis])
            domain.insert(0, size)
            element.insert(0, minus(base, int64(low)))
            target[axis] = plus(Index(1), int64(low + offset))
        buffer = self._partial(statement.buffer, tuple(target), statement.op, tuple(domain))
        return replace(statement, buffer=buffer, index=self._element(element))

    def _partial(self, *partial: Any) -> Buffer:
        """Return the buffer of partial results, given as the fields of :class:`_Partial`; equal ones are one buffer."""
        key = _Partial(*partial)
        if key not in self.partials:
            name, dtype = f"{self.counter.name}p{len(self.partials)}", key.target.dtype
            shape = self.count, *_whole_lines(key.shape or (1,), dtype)
            self.partials[key] = Buffer(name, dtype, shape, Role.SCRATCH)
        return self.partials[key]

    def _element(self, inside: Iterable[Expr], chunk: Expr | None = None) -> tuple[Expr, ...]:
        """Return the index of a partial result of a chunk."""
        return chunk or self.chunk, *(tuple(inside) or (ZERO,))

    def _sets(self) -> list[Loop]:
        """Return the loops that set the partial results of a chunk."""
        stores: dict[tuple[Size, ...], list[Statement]] = {}
        for partial, buffer in self.partials.items():
            inside = map(Index, range(len(partial.shape)))
            store = Store(buffer, self._element(inside), neutral(partial.op, buffer.dtype))
            stores.setdefault(partial.shape, []).append(store)
        return [Loop(domain, tuple(body), self.when) for domain, body in stores.items()]

    def _merges(self) -> list[Loop]:
        """Return the loops that merge the partial results of all chunks."""
        merges: dict[tuple[Size, ...], list[Statement]] = {}
        for partial, buffer in self.partials.items():
            domain = self.count, *partial.shape
            inside = map(Index, range(1, len(domain)))
            value = Load(buffer, self._element(inside, Index(0)))
            merge = Accumulate(partial.target, partial.element, partial.op, value)
            merges.setdefault(domain, []).append(merge)
        return [Loop(domain, tuple(body), self.when) for domain, body in merges.items()]


def _whole_lines(shape: tuple[Size, ...], dtype: str) -> tuple[Size, ...]:
    """Return a shape whose first length is rounded up to whole cache lines: threads that write to one line wait for each other."""
    first, *others = shape
    assert isinstance(first, int)
    per_line = LINE // itemsize(dtype)
    multiple = per_line // gcd(per_line, prod(n for n in others if isinstance(n, int)))
    return -(-first // multiple) * multiple, *others


def _is_disjoint(loop: Loop, statement: Accumulate, groups: _Groups | None) -> bool:
    """Return whether rows of different chunks have different elements, by an affine index of the row alone or by their groups."""
    if groups is not None and groups.of_row in map(_source, statement.index):
        return True
    indices = [Index(axis) for axis in range(len(loop.domain))]
    forms = [affine(i, indices) for i in statement.index]
    return any(form is not None and {*form.coefficients} == {ROW} for form in forms)


def _window(index: Expr) -> tuple[int, int] | None:
    """Return the first element and the size of a window for a gathered index: the range of the index."""
    source = _source(index)
    facts = None if source is None else _facts(source.buffer)
    return None if facts is None else (facts.minimum, facts.maximum + 1 - facts.minimum)
