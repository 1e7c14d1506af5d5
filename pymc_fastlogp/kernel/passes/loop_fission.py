"""A large loop becomes several, where nothing that its rows compute is lost.

Fusing makes one loop of all likelihoods of the same number of rows. What they share are loads and scalars; each computes its own terms.
A hundred of them in one body have more values than registers, and LLVM takes longer for one body
than for its parts. So statements that share an expression of floats, other than one that is the same for all rows, stay
together, and the loop is parted between them. The statements of a loop read nothing that it writes, so parts compute the same.
"""

from collections.abc import Iterator
from dataclasses import replace

from pymc_fastlogp.kernel.ir.expressions import Compute, Expr, Index
from pymc_fastlogp.kernel.ir.loops import Check, Loop, Program, Statement
from pymc_fastlogp.kernel.ir.traversal import (
    expressions,
    is_ordered,
    operands,
    roots,
    walk,
    with_loops,
)

# Expressions of a body that is parted, and of its parts (``python -m benchmarks.growth``).
LARGE, PART = 2_500, 300


def part_large_loops(program: Program) -> Program:
    """Return the program with several loops in place of a large one, where its statements share little."""
    return replace(program, steps=with_loops(program.steps, _parted))


def _parted(loop: Loop) -> list[Loop]:
    in_order = is_ordered(loop) or any(isinstance(statement, Check) for statement in loop.body)
    if in_order or sum(1 for _ in expressions(loop)) <= LARGE:
        return [loop]
    return [replace(loop, body=tuple(body)) for body in _bodies(loop)]


def _bodies(loop: Loop) -> Iterator[list[Statement]]:
    body, size = list[Statement](), 0
    for statements in _families(loop):
        n_more = sum(1 for _ in expressions(replace(loop, body=tuple(statements))))
        if body and size + n_more > PART:
            yield body
            body, size = [], 0
        body += statements
        size += n_more
    yield body


def _families(loop: Loop) -> list[list[Statement]]:
    """Return the statements of a loop, those together that share what rows compute, directly or not."""
    # Of large loops alone: it takes longer to import than most models to lower.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    computed = _computed_by_rows(loop)
    numbers = {expr: len(loop.body) + k for k, expr in enumerate(computed)}
    edges = [
        (k, numbers[expr])
        for k, statement in enumerate(loop.body)
        for expr in walk(roots(statement))
        if expr in numbers
    ]
    n = len(loop.body) + len(numbers)
    first, second = zip(*edges, strict=True) if edges else ((), ())
    graph = coo_array(([True] * len(edges), (first, second)), shape=(n, n))
    labels = connected_components(graph, directed=False)[1]
    families: dict[int, list[Statement]] = {}
    for label, statement in zip(labels, loop.body, strict=False):
        families.setdefault(label, []).append(statement)
    return list(families.values())


def _computed_by_rows(loop: Loop) -> list[Expr]:
    """Return the floats that a loop computes anew for each of its rows."""
    changing: dict[Expr, None] = {}
    for expr in expressions(loop):
        if isinstance(expr, Index) or any(x in changing for x in operands(expr)):
            changing[expr] = None
    return [x for x in changing if isinstance(x, Compute) and x.dtype.startswith("float")]
