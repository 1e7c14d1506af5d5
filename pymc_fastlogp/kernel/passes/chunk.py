r"""Chunks of rows: split a long loop into a parallel loop over chunks, and merge the partial results in the order of the chunks.

.. code-block:: text

    loop n:                                 parallel k0 K:
        y[g[i0]] += f(x[i0])                    loop :
        z[] += h(x[i0])                             q[k0] = 0
                                                loop w:
                                        ->          p[k0, i0] = 0
                                                loop rows(k0) from first(k0):
                                                    p[k0, g[i0] - low] += f(x[i0])
                                                    q[k0] += h(x[i0])
                                            loop K, w:
                                                y[low + i1] += p[i0, i1]
                                            loop K:
                                                z[] += q[i0]

The chunks depend on the number of rows (:mod:`pymc_fastlogp.analysis.row_chunks`), not on the number of threads. So results are equal bit for bit for any
number of threads, and without threads. Rows behind the last chunk are an ordinary loop.

A store needs no partial result, nor does an accumulation whose element differs from row to row by an affine index. A scatter by an ascending index needs
none either if chunks start at group borders, which data decide. Another scatter needs a window of its target for each chunk: the range
``low, ..., low + w - 1`` of its index, which is known for constants.

Windows take time without threads, too: each element is set and merged once per chunk. A loop is split if this costs at most :data:`MERGING` of the
time of the loop. Loops shorter than :data:`LONG` stay whole.

A loop over blocks of rows (:mod:`pymc_fastlogp.kernel.passes.row_blocks`) is split likewise, between blocks. The product of rows that is added
to a vector has a partial vector for each chunk.
"""

from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np
from pytensor import scalar as ps
from pytensor.scalar.basic import Cast

from pymc_fastlogp.analysis.index_facts import IndexFacts, index_facts
from pymc_fastlogp.analysis.row_chunks import COUNTS, LANES
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
    times,
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
)
from pymc_fastlogp.kernel.ir.loops import (
    Accumulate,
    BlockLoop,
    Call,
    Loop,
    ParallelLoop,
    Program,
    Statement,
    Step,
    Store,
)
from pymc_fastlogp.kernel.ir.substitute import substitute_in_element, substitute_in_loop
from pymc_fastlogp.kernel.ir.traversal import depends_on, is_call, loaded, loops_in, writes
from pymc_fastlogp.kernel.scalars.cost import nanoseconds

# Estimated nanoseconds of a loop that is split, and of a chunk. A chunk takes up to 0.2 us more than its rows, besides its windows.
LONG, CHUNK = 40_000, 10_000
# Nanoseconds to set one element of a window and to merge it.
ELEMENT = 0.3
# Nanoseconds of one multiplication of a product of rows, most of which are for the load of the matrix.
MULTIPLICATION = 0.15
# Largest part of the time of a loop for the windows of its chunks.
MERGING = 0.03

ROW = Index(0)


def chunk_long_loops(program: Program) -> Program:
    """Split long loops into chunks of rows."""
    steps: list[Step] = []
    scratch, constants = [*program.scratch], [*program.constants]
    n_split = 0
    for step in program.steps:
        split = _split(step, n_split) if isinstance(step, Loop | BlockLoop) else None
        if split is None:
            steps.append(step)
            continue
        n_split += 1
        steps += split.steps
        scratch += split.scratch
        constants += split.constants
    if not n_split:
        return program
    return replace(
        program, steps=tuple(steps), scratch=tuple(scratch), constants=tuple(constants)
    )


class _Split(NamedTuple):
    """Steps in place of a loop, and their new buffers."""

    steps: list[Step]
    scratch: list[Buffer]
    constants: list[Buffer]


def _split(step: Loop | BlockLoop, number: int) -> _Split | None:
    """Return the chunks of a loop, None if the loop stays whole."""
    n_units = step.length if isinstance(step, BlockLoop) else _n_vectors(step)
    if not isinstance(n_units, int) or not all(map(_is_splittable, loops_in([step]))):
        return None
    time = sum(map(_nanoseconds, loops_in([step])))
    if isinstance(step, BlockLoop):
        time *= n_units
    if time < LONG:
        return None
    counter = Buffer(f"k{number}", "int64", (), Role.SCRATCH)
    for count in COUNTS:
        if n_units < count or time / count < CHUNK:
            continue
        for groups in (*_groups(step, count), None):
            chunked = _Chunks(step, n_units, count, counter, groups).of_step()
            if chunked is not None and _merge_time(chunked) <= MERGING * time:
                return chunked
    return None


class _Groups(NamedTuple):
    """Groups of an ascending index, at whose borders chunks start.

    Attributes
    ----------
    index : Load
        The group of a row.
    starts : tuple of int
        The first row of each chunk, and the number of rows.
    """

    index: Load
    starts: tuple[int, ...]


def _groups(step: Loop | BlockLoop, count: int) -> list[_Groups]:
    """Return the groups of the longest range by which a loop scatters, in a list; empty if no scatter has an ascending index."""
    if isinstance(step, BlockLoop):
        return []
    found: dict[_Groups, int] = {}
    for statement in step.body:
        for index in statement.index if isinstance(statement, Accumulate) else ():
            source = _source(index)
            if source is None or source.index != (ROW,):
                continue
            facts = _facts(source.buffer)
            starts = facts and facts.chunk_starts(count)
            if facts is not None and starts:
                found[_Groups(source, starts)] = facts.maximum - facts.minimum
    return sorted(found, key=lambda x: -found[x])[:1]


def _source(index: Expr) -> Load | None:
    """Return the element that is an index, up to an offset and its dtype."""
    source, _ = base_and_offset(index)
    if isinstance(source, Compute) and isinstance(source.op, Cast):
        [source] = source.args
    return source if isinstance(source, Load) else None


def _merge_time(split: "_Split") -> float:
    """Return the approximate nanoseconds for the partial results of all chunks, which have static shapes."""
    return ELEMENT * sum(prod(n for n in x.shape if isinstance(n, int)) for x in split.scratch)


def _n_vectors(loop: Loop) -> int | None:
    """Return the number of whole vectors of rows, None if there are no rows or not a static number."""
    n_rows = loop.domain[0] if loop.domain else None
    return n_rows // LANES if isinstance(n_rows, int) else None


def _n_rows(step: Loop | BlockLoop) -> int:
    """Return the number of rows, which is static."""
    if isinstance(step, Loop):
        [n_rows, *_] = step.domain
        assert isinstance(n_rows, int)
        return n_rows
    calls = (x for loop in loops_in([step]) for x in loop.body if isinstance(x, Call))
    _, of_block, *_ = next(calls).arguments
    assert isinstance(of_block, Const)
    assert isinstance(step.length, int)
    return int(of_block.value) * step.length


def _is_splittable(loop: Loop) -> bool:
    """Return whether a loop can run in chunks, as far as its lengths and the kinds of its statements decide."""
    is_static = all(isinstance(size, int) for size in loop.domain)
    return is_static and all(
        isinstance(each, Accumulate)
        or (isinstance(each, Store) and not each.in_order)
        or (isinstance(each, Call) and each.function in ("add_dots", "add_rows"))
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
        return MULTIPLICATION * n_columns.value * n_rows.value
    return nanoseconds(loop) * prod(size for size in loop.domain if isinstance(size, int))


def _facts(index: Buffer) -> IndexFacts | None:
    """Return the facts about an index, which are not known for scratch buffers."""
    if index.role is Role.CONSTANT:
        return index_facts(np.frombuffer(index.data, index.dtype))
    return index.facts


class _Partial(NamedTuple):
    """The partial results of an accumulation for each chunk, and the accumulation of all of them in the target."""

    buffer: Buffer
    merge: Accumulate


class _Chunks:
    """The split of one loop over rows, or over blocks of rows."""

    def __init__(
        self,
        step: Loop | BlockLoop,
        n_units: int,
        count: int,
        counter: Buffer,
        groups: _Groups | None,
    ):
        self.step = step
        self.when = step.when if isinstance(step, Loop) else None
        self.n_units = n_units
        self.count = count
        self.counter = counter
        self.chunk = Load(counter, ())
        self.groups = groups
        self.starts: Buffer | None = None
        if groups is not None:
            data = np.array(groups.starts, "int64").tobytes()
            self.starts = Buffer(f"{counter.name}s", "int64", (count + 1,), Role.CONSTANT, data)
        self.partials: list[_Partial] = []

    def of_step(self) -> _Split | None:
        """Return the steps in place of the loop, None if an accumulation has no window."""
        rows = self._rows(self.step) if isinstance(self.step, Loop) else self._blocks(self.step)
        if rows is None:
            return None
        steps = (*self._starts(), rows)
        parallel = ParallelLoop(self.counter, self.count, steps, self.when, _n_rows(self.step))
        scratch = [partial.buffer for partial in self.partials]
        is_whole = isinstance(self.step, BlockLoop) or self.starts is not None
        rest = [] if is_whole else self._rest(self.step)
        constants = [] if self.starts is None else [self.starts]
        return _Split([parallel, *self._merges(), *rest], [self.counter, *scratch], constants)

    def _rows(self, loop: Loop) -> Loop | None:
        """Return the loop over the rows of a chunk."""
        body = self._in_chunk(loop)
        if body is None:
            return None
        first, behind = self._first_row(self.chunk), self._first_row(plus(self.chunk, ONE))
        n_rows = times(self._n_units_in_chunk(), int64(LANES))
        if self.starts is not None:
            n_rows = minus(behind, first)
        return replace(loop, domain=(n_rows, *loop.domain[1:]), body=body, first=first)

    def _blocks(self, blocks: BlockLoop) -> BlockLoop | None:
        """Return the loop over the blocks of a chunk."""
        number = Load(blocks.counter, ())
        numbers: dict[Expr, Expr] = {number: plus(number, self._first_unit(self.chunk))}
        steps = []
        for loop in loops_in(blocks.steps):
            body = self._in_chunk(loop)
            if body is None:
                return None
            moved = substitute_in_loop(replace(loop, body=body), numbers.get)
            if loop.first is not None:
                [first] = substitute_in_element((loop.first,), numbers.get)
                moved = replace(moved, first=first)
            steps.append(moved)
        return replace(blocks, length=self._n_units_in_chunk(), steps=tuple(steps))

    def _in_chunk(self, loop: Loop) -> tuple[Statement, ...] | None:
        """Return the statements of a loop in a chunk, None if the elements of one are not known."""
        body = [self._statement(loop, statement) for statement in loop.body]
        return None if None in body else tuple(x for x in body if x is not None)

    def _statement(self, loop: Loop, statement: Statement) -> Statement | None:
        """Return a statement of a chunk with the row as index of the whole loop, None if its elements are not known."""
        if isinstance(statement, Call):
            return self._added_rows(statement) if statement.function == "add_rows" else statement
        if not isinstance(statement, Accumulate) or self._is_disjoint(loop, statement):
            return statement
        if not loaded(statement.index).isdisjoint(writes(self.step)):
            return None
        axes = [axis for axis, i in enumerate(statement.index) if depends_on([i], ROW)]
        if not axes:
            return self._add(loop, statement, None)
        window = self._window(statement.index[axes[0]]) if len(axes) == 1 else None
        return None if window is None else self._add(loop, statement, (axes[0], *window))

    def _is_disjoint(self, loop: Loop, statement: Accumulate) -> bool:
        """Return whether rows of different chunks have different elements, by an affine index of the row alone or by their groups."""
        if self.groups is not None and self.groups.index in map(_source, statement.index):
            return True
        indices = [Index(axis) for axis in range(len(loop.domain))]
        forms = [affine(i, indices) for i in statement.index]
        return any(form is not None and {*form.coefficients} == {ROW} for form in forms)

    def _window(self, index: Expr) -> tuple[int, int] | None:
        """Return the first element and the size of a window for a gathered index: the range of the index."""
        source = _source(index)
        facts = source and _facts(source.buffer)
        return None if facts is None else (facts.minimum, facts.maximum + 1 - facts.minimum)

    def _added_rows(self, call: Call) -> Call:
        """Add the partial results of a product, and return the product in a chunk."""
        # Behind the axis of the chunks.
        (_, *domain), (_, *element) = domain_of((self.count, *call.buffer.shape))
        buffer = self._add_partial(call.buffer, tuple(domain), tuple(element), ps.add)
        return replace(call, buffer=buffer, index=(self.chunk, *[ZERO] * len(domain)))

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
        element: list[Expr] = [self.chunk, *inner]
        if window is not None:
            axis, low, size = window
            base, offset = base_and_offset(statement.index[axis])
            domain.insert(0, size)
            element.insert(1, minus(base, int64(low)))
            target[axis] = plus(Index(1), int64(low + offset))
        buffer = self._add_partial(statement.buffer, tuple(domain), tuple(target), statement.op)
        return replace(statement, buffer=buffer, index=tuple(element))

    def _add_partial(
        self,
        target: Buffer,
        shape: tuple[Size, ...],
        element: tuple[Expr, ...],
        operation: ps.ScalarOp,
    ) -> Buffer:
        """Return a new buffer of partial results with a shape per chunk; ``element`` is the element of the target for each of them."""
        name = f"{self.counter.name}p{len(self.partials)}"
        buffer = Buffer(name, target.dtype, (self.count, *shape), Role.SCRATCH)
        value = Load(buffer, tuple(map(Index, range(buffer.ndim))))
        self.partials.append(_Partial(buffer, Accumulate(target, element, operation, value)))
        return buffer

    def _first_unit(self, chunk: Expr) -> Expr:
        """Return the number of the first vector or block of a chunk."""
        product = times(chunk, int64(self.n_units))
        return Compute(ps.int_div, (product, int64(self.count)), "int64")

    def _first_row(self, chunk: Expr) -> Expr:
        """Return the first row of a chunk."""
        if self.starts is not None:
            return Load(self.starts, (chunk,))
        return times(self._first_unit(chunk), int64(LANES))

    def _n_units_in_chunk(self) -> Expr:
        return minus(self._first_unit(plus(self.chunk, ONE)), self._first_unit(self.chunk))

    def _starts(self) -> list[Loop]:
        """Return the loops that set the partial results of a chunk."""
        stores: dict[tuple[Size, ...], list[Statement]] = {}
        for buffer, merge in self.partials:
            domain = buffer.shape[1:]
            element: tuple[Expr, ...] = (self.chunk, *map(Index, range(len(domain))))
            store = Store(buffer, element, neutral(merge.op, buffer.dtype))
            stores.setdefault(domain, []).append(store)
        return [Loop(domain, tuple(body), self.when) for domain, body in stores.items()]

    def _merges(self) -> list[Loop]:
        """Return the loops that merge the partial results of all chunks."""
        merges: dict[tuple[Size, ...], list[Statement]] = {}
        for buffer, merge in self.partials:
            merges.setdefault(buffer.shape, []).append(merge)
        return [Loop(domain, tuple(body), self.when) for domain, body in merges.items()]

    def _rest(self, loop: Loop) -> list[Loop]:
        """Return the loop over the rows behind the last chunk."""
        n_rows = loop.domain[0]
        assert isinstance(n_rows, int)
        if not n_rows % LANES:
            return []
        domain = (n_rows % LANES, *loop.domain[1:])
        return [replace(loop, domain=domain, first=int64(n_rows - n_rows % LANES))]
