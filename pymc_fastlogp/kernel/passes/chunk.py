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

A store needs no partial result, nor does an accumulation whose element differs from row to row by an affine index. A scatter needs a window of its
target for each chunk: the range ``low, ..., low + w - 1`` of its index, which is known for constants.

Windows take time without threads, too: each element is set and merged once per chunk. A loop is split if this costs at most :data:`MERGING` of the
time of the loop. Loops shorter than :data:`LONG` stay whole.
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
    base_and_offset,
    int64,
    minus,
    neutral,
    plus,
    times,
)
from pymc_fastlogp.kernel.ir.expressions import (
    Buffer,
    Compute,
    Expr,
    Index,
    Load,
    Role,
    Size,
)
from pymc_fastlogp.kernel.ir.loops import (
    Accumulate,
    Loop,
    ParallelLoop,
    Program,
    Statement,
    Step,
    Store,
)
from pymc_fastlogp.kernel.ir.substitute import substitute_in_element
from pymc_fastlogp.kernel.ir.traversal import depends_on, loaded, writes
from pymc_fastlogp.kernel.scalars.cost import nanoseconds

# Estimated nanoseconds of a loop that is split, and of a chunk. A chunk takes up to 0.2 us more than its rows, besides its windows.
LONG, CHUNK = 40_000, 10_000
# Nanoseconds to set one element of a window and to merge it.
ELEMENT = 0.3
# Largest part of the time of a loop for the windows of its chunks.
MERGING = 0.03

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
    counter = Buffer(f"k{number}", "int64", (), Role.SCRATCH)
    for count in COUNTS:
        if sizes[0] < count * LANES or time / count < CHUNK:
            continue
        chunked = _Chunks(loop, count, counter).of_loop()
        if chunked is None:
            return None
        # All lengths are static.
        n_elements = sum(prod(n for n in x.shape if isinstance(n, int)) for x in chunked.scratch)
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
        return index_facts(np.frombuffer(index.data, index.dtype))
    return index.facts


class _Partial(NamedTuple):
    """An accumulation in the window of a chunk, and the accumulation of all windows in the target."""

    statement: Accumulate
    merge: Accumulate


class _Chunks:
    """The split of one loop."""

    def __init__(self, loop: Loop, count: int, counter: Buffer):
        self.loop = loop
        self.count = count
        self.counter = counter
        self.chunk = Load(counter, ())
        self.partials: list[_Partial] = []

    def of_loop(self) -> _Split | None:
        """Return the steps in place of the loop, None if an accumulation has no window."""
        body = [self._in_chunk(statement) for statement in self.loop.body]
        if None in body:
            return None
        statements = [statement for statement in body if statement is not None]
        n_vectors = minus(self._first_vector(plus(self.chunk, ONE)), self._first_vector(self.chunk))
        rows = replace(
            self.loop,
            domain=(times(n_vectors, int64(LANES)), *self.loop.domain[1:]),
            body=tuple(statements),
            first=self._first_row(self.chunk),
        )
        steps = (*self._starts(), rows)
        parallel = ParallelLoop(self.counter, self.count, steps, self.loop.when)
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

    def _window(self, index: Expr) -> tuple[int, int] | None:
        """Return the first element and the size of a window for a gathered index: the range of the index."""
        source, _ = base_and_offset(index)
        if isinstance(source, Compute) and isinstance(source.op, Cast):
            [source] = source.args
        facts = _facts(source.buffer) if isinstance(source, Load) else None
        return None if facts is None else (facts.minimum, facts.maximum + 1 - facts.minimum)

    def _add(self, statement: Accumulate, window: tuple[int, int, int] | None) -> Accumulate:
        """Add the partial results of an accumulation, and return the accumulation in a chunk."""
        axes = map(Index, range(1, len(self.loop.domain)))
        inner = [axis for axis in axes if depends_on(statement.index, axis)]
        moved: dict[Expr, Expr] = {
            axis: Index(k) for k, axis in enumerate(inner, 1 if window is None else 2)
        }
        target = [*substitute_in_element(statement.index, moved.get)]
        domain = [self.loop.domain[axis.axis] for axis in inner]
        element: list[Expr] = [self.chunk, *inner]
        if window is not None:
            axis, low, size = window
            base, offset = base_and_offset(statement.index[axis])
            domain.insert(0, size)
            element.insert(1, minus(base, int64(low)))
            target[axis] = plus(Index(1), int64(low + offset))
        name = f"{self.counter.name}p{len(self.partials)}"
        shape = (self.count, *domain)
        buffer = Buffer(name, statement.buffer.dtype, shape, Role.SCRATCH)
        value = Load(buffer, tuple(map(Index, range(len(shape)))))
        merge = Accumulate(statement.buffer, tuple(target), statement.op, value)
        in_chunk = replace(statement, buffer=buffer, index=tuple(element))
        self.partials.append(_Partial(in_chunk, merge))
        return in_chunk

    def _first_vector(self, chunk: Expr) -> Expr:
        """Return the number of the first vector of a chunk."""
        n_rows = self.loop.domain[0]
        assert isinstance(n_rows, int)
        product = times(chunk, int64(n_rows // LANES))
        return Compute(ps.int_div, (product, int64(self.count)), "int64")

    def _first_row(self, chunk: Expr) -> Expr:
        return times(self._first_vector(chunk), int64(LANES))

    def _starts(self) -> list[Loop]:
        """Return the loops that set the partial results of a chunk."""
        stores: dict[tuple[Size, ...], list[Statement]] = {}
        for statement, _ in self.partials:
            domain = statement.buffer.shape[1:]
            element: tuple[Expr, ...] = (self.chunk, *map(Index, range(len(domain))))
            identity = neutral(statement.op, statement.buffer.dtype)
            stores.setdefault(domain, []).append(Store(statement.buffer, element, identity))
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
        assert isinstance(n_rows, int)
        if not n_rows % LANES:
            return []
        domain = (n_rows % LANES, *self.loop.domain[1:])
        return [replace(self.loop, domain=domain, first=int64(n_rows - n_rows % LANES))]
