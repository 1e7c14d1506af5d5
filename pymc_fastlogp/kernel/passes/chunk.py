r"""Chunks of rows: split a long loop into a parallel loop over chunks, and merge the partial results in the order of the chunks.

.. code-block:: text

    loop n:                                 parallel k0 K:
        y[g[i0]] += f(x[i0])                    loop :
        z[] += h(x[i0])                             q[k0] = 0
                                                loop w:
                                        ->          p[k0, i0] = 0
                                                loop C:
                                                    p[k0, g[k0 C + i0] - low(k0)] += f(x[k0 C + i0])
                                                    q[k0] += h(x[k0 C + i0])
                                            loop K, w:
                                                y[low(i0) + i1] += p[i0, i1]
                                            loop K:
                                                z[] += q[i0]

The chunks depend on the number of rows (:mod:`pymc_fastlogp.analysis.row_chunks`), not on the number of threads. So results are equal bit for bit for any
number of threads, and without threads. Rows behind the last chunk are an ordinary loop.

A store needs no partial result, nor does an accumulation whose element differs from row to row by an affine index. A scatter needs a window of its
target for each chunk: the range of its index, or, if the index is ascending, the largest range of a chunk. Then ``low(k) = min(g[k C], max(g) + 1 - w)``.

Windows take time without threads, too: each element is set and merged once per chunk. A loop is split if this costs at most :data:`MERGING` of the
time of the loop. Loops shorter than :data:`LONG` stay whole.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np
from pytensor import scalar as ps
from pytensor.scalar.basic import Cast

from pymc_fastlogp.analysis.index_facts import IndexFacts, index_facts
from pymc_fastlogp.analysis.row_chunks import AIMS, RowChunks, split_rows
from pymc_fastlogp.kernel.ir.affine import affine
from pymc_fastlogp.kernel.ir.arithmetic import (
    base_and_offset,
    int64,
    minus,
    neutral,
    plus,
    times,
)
from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Expr, Index, Load, Role, Size
from pymc_fastlogp.kernel.ir.loops import (
    Accumulate,
    Loop,
    ParallelLoop,
    Program,
    Statement,
    Step,
    Store,
)
from pymc_fastlogp.kernel.ir.substitute import substitute, substitute_in_element
from pymc_fastlogp.kernel.ir.traversal import depends_on, loaded, writes
from pymc_fastlogp.kernel.scalars.cost import nanoseconds

# Estimated nanoseconds of a loop that is worth the start of threads, and of a chunk that is worth its own start.
LONG, CHUNK = 16_000, 2_500
# Nanoseconds to set one element of a window and to merge it.
ELEMENT = 0.2
# Largest part of the time of a loop for the windows of its chunks.
MERGING = 0.04

ROW = Index(0)


def chunk_long_loops(program: Program) -> Program:
    """Split long loops into chunks of rows."""
    steps: list[Step] = []
    scratch = list(program.scratch)
    n_split = 0
    for step in program.steps:
        split = _split(step, n_split) if isinstance(step, Loop) else None
        if split is None:
            steps.append(step)
            continue
        n_split += 1
        steps += split.steps
        scratch += split.scratch
    return replace(program, steps=tuple(steps), scratch=tuple(scratch)) if n_split else program


class _Split(NamedTuple):
    """Steps in place of a loop, and their new buffers."""

    steps: list[Step]
    scratch: list[Buffer]


def _split(loop: Loop, number: int) -> _Split | None:
    """Return the chunks of a loop, None if the loop stays whole."""
    sizes = [size for size in loop.domain if isinstance(size, int)]
    if not sizes or len(sizes) < len(loop.domain) or not all(map(_is_splittable, loop.body)):
        return None
    time = nanoseconds(loop) * prod(sizes)
    if time < LONG:
        return None
    for level, aim in enumerate(AIMS):
        chunks = split_rows(sizes[0], aim)
        if not chunks.length or time / chunks.count < CHUNK:
            continue
        counter = Buffer(f"k{number}", "int64", (), Role.SCRATCH)
        chunked = _Chunks(loop, chunks, level, counter).of_loop()
        if chunked is None:
            return None
        n_elements = sum(prod(map(int, x.shape)) for x in chunked.scratch)
        if n_elements * ELEMENT <= MERGING * time:
            return chunked
    return None


def _is_splittable(statement: Statement) -> bool:
    """Return whether a statement can run in chunks, as far as its kind decides."""
    return isinstance(statement, Accumulate) or (
        isinstance(statement, Store) and not statement.in_order
    )


def _facts(index: Buffer) -> IndexFacts | None:
    """Return the facts about an index, which are not known for scratch buffers."""
    if index.role is Role.CONSTANT:
        return index_facts(np.frombuffer(index.data, index.dtype).reshape(index.shape))
    return index.facts


class _Partial(NamedTuple):
    """An accumulation in the window of a chunk, and the accumulation of all windows in the target."""

    statement: Accumulate
    merge: Accumulate


class _Chunks:
    """The split of one loop."""

    def __init__(self, loop: Loop, chunks: RowChunks, level: int, counter: Buffer):
        self.loop = loop
        self.chunks = chunks
        self.level = level
        self.counter = counter
        self.chunk = Load(counter, ())
        self.partials: list[_Partial] = []

    def of_loop(self) -> _Split | None:
        """Return the steps in place of the loop, None if an accumulation has no window."""
        body = [self._in_chunk(statement) for statement in self.loop.body]
        if None in body:
            return None
        statements = [statement for statement in body if statement is not None]
        rows = replace(
            self.loop,
            domain=(self.chunks.length, *self.loop.domain[1:]),
            body=self._from_row(statements, self._first_row(self.chunk)),
        )
        steps = (*self._starts(), rows)
        parallel = ParallelLoop(self.counter, self.chunks.count, steps, self.loop.when)
        scratch = [partial.statement.buffer for partial in self.partials]
        return _Split([parallel, *self._merges(), *self._rest()], [self.counter, *scratch])

    def _in_chunk(self, statement: Statement) -> Statement | None:
        """Return a statement of a chunk with the row as index of the whole loop, None if its elements are not known."""
        if not isinstance(statement, Accumulate) or self._is_disjoint(statement):
            return statement
        if not loaded(statement.index).isdisjoint(writes(self.loop)):
            return None
        axes = [axis for axis, i in enumerate(statement.index) if depends_on([i], ROW)]
        if not axes:
            return self._add(statement, None)
        window = self._window(statement.index[axes[0]]) if len(axes) == 1 else None
        return None if window is None else self._add(statement, (axes[0], *window))

    def _is_disjoint(self, statement: Accumulate) -> bool:
        """Return whether different rows have different elements, by an affine index of the row alone."""
        indices = [Index(axis) for axis in range(len(self.loop.domain))]
        forms = [affine(i, indices) for i in statement.index]
        return any(form is not None and {*form.coefficients} == {ROW} for form in forms)

    def _window(self, index: Expr) -> tuple[int, Expr] | None:
        """Return the size of a window, and its first element as an expression of the first row, for a gathered index."""
        base, _ = base_and_offset(index)
        source = base
        while isinstance(source, Compute) and isinstance(source.op, Cast):
            [source] = source.args
        if not isinstance(source, Load) or source.index != (ROW,):
            return None
        facts = _facts(source.buffer)
        if facts is None:
            return None
        size = facts.maximum + 1 - facts.minimum
        # The windows belong to the chunks of the whole index.
        if not facts.windows or source.buffer.shape != self.loop.domain[:1]:
            return size, int64(facts.minimum)
        window = min(size, facts.windows[self.level])
        first = Compute(ps.minimum, (base, int64(facts.maximum + 1 - window)), "int64")
        return window, first

    def _add(self, statement: Accumulate, window: tuple[int, int, Expr] | None) -> Accumulate:
        """Add the partial results of an accumulation, and return the accumulation in a chunk."""
        inner = [
            axis
            for axis in map(Index, range(1, len(self.loop.domain)))
            if depends_on(statement.index, axis)
        ]
        domain = [self.loop.domain[axis.axis] for axis in inner]
        element: list[Expr] = [*inner]
        if window is not None:
            domain.insert(0, window[1])
            base, offset = base_and_offset(statement.index[window[0]])
            element.insert(0, minus(base, self._low(window[2], self.chunk)))
        moved = {axis: Index(k) for k, axis in enumerate(inner, 1 + len(domain) - len(inner))}
        target = [*substitute_in_element(statement.index, moved.get)]
        if window is not None:
            first = self._low(window[2], Index(0))
            target[window[0]] = plus(plus(first, Index(1)), int64(offset))
        name = f"{self.counter.name}p{len(self.partials)}"
        shape = (self.chunks.count, *domain)
        buffer = Buffer(name, statement.buffer.dtype, shape, Role.SCRATCH)
        value = Load(buffer, tuple(map(Index, range(len(shape)))))
        merge = Accumulate(statement.buffer, tuple(target), statement.op, value)
        own = replace(statement, buffer=buffer, index=(self.chunk, *element))
        self.partials.append(_Partial(own, merge))
        return own

    def _low(self, low: Expr, chunk: Expr) -> Expr:
        """Return the first element of the window of a chunk."""
        [first] = substitute_in_element((low,), {ROW: self._first_row(chunk)}.get)
        return first

    def _first_row(self, chunk: Expr) -> Expr:
        return times(chunk, int64(self.chunks.length))

    def _from_row(self, body: Sequence[Statement], first: Expr) -> tuple[Statement, ...]:
        """Return statements with rows counted from a first row."""
        return substitute(body, {ROW: plus(first, ROW)}.get)

    def _starts(self) -> list[Loop]:
        """Return the loops that set the partial results of a chunk."""
        stores: dict[tuple[Size, ...], list[Statement]] = {}
        for statement, _ in self.partials:
            domain = statement.buffer.shape[1:]
            index = (self.chunk, *map(Index, range(len(domain))))
            identity = neutral(statement.op, statement.buffer.dtype)
            stores.setdefault(domain, []).append(Store(statement.buffer, index, identity))
        return [replace(self.loop, domain=x, body=tuple(y)) for x, y in stores.items()]

    def _merges(self) -> list[Loop]:
        """Return the loops that merge the partial results of all chunks."""
        merges: dict[tuple[Size, ...], list[Statement]] = {}
        for statement, merge in self.partials:
            merges.setdefault(statement.buffer.shape, []).append(merge)
        return [replace(self.loop, domain=x, body=tuple(y)) for x, y in merges.items()]

    def _rest(self) -> list[Loop]:
        """Return the loop over the rows behind the last chunk."""
        n_rows = self.loop.domain[0]
        n_chunked = self.chunks.count * self.chunks.length
        assert isinstance(n_rows, int)
        if n_rows == n_chunked:
            return []
        body = self._from_row(self.loop.body, int64(n_chunked))
        return [replace(self.loop, domain=(n_rows - n_chunked, *self.loop.domain[1:]), body=body)]
