"""Loop fission: split a large loop into several loops, between statements that share no computation per row.

.. code-block:: text

    loop n:                              loop n:
        y += f(x[i0])              ->        y += f(x[i0])
        z += g(w[i0])                    loop n:
                                             z += g(w[i0])

Fusion merges all likelihoods of the same number of rows into one loop. Most of them share only loads and scalars.
The body of a hundred likelihoods has more values than the CPU has registers, and LLVM takes longer for one long body
than for several short bodies.

Statements that share a float expression that varies by row stay together. The statements of a loop read no buffer that
the loop writes, so any split is equivalent.
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

# Largest number of expressions of a body that stays whole, and of a part (``python -m benchmarks.growth``).
LARGE, PART = 2_500, 300


def split_large_loops(program: Program) -> Program:
    """Split large loops whose statements share no computation per row."""
    return replace(program, steps=with_loops(program.steps, _split_loop))


def _split_loop(loop: Loop) -> list[Loop]:
    in_order = is_ordered(loop) or any(isinstance(statement, Check) for statement in loop.body)
    if in_order or sum(1 for _ in expressions(loop)) <= LARGE:
        return [loop]
    return [replace(loop, body=tuple(body)) for body in _bodies(loop)]


def _bodies(loop: Loop) -> Iterator[list[Statement]]:
    body, size = list[Statement](), 0
    for statements in _connected_statements(loop):
        n_more = sum(1 for _ in expressions(replace(loop, body=tuple(statements))))
        if body and size + n_more > PART:
            yield body
            body, size = [], 0
        body += statements
        size += n_more
    yield body


def _connected_statements(loop: Loop) -> list[list[Statement]]:
    """Group the statements of a loop that share a computation per row, directly or not."""
    # A lazy import: SciPy takes longer to import than most models take to lower, and only large loops get here.
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
    """Return the float computations of a loop that vary by row."""
    changing: dict[Expr, None] = {}
    for expr in expressions(loop):
        if isinstance(expr, Index) or any(x in changing for x in operands(expr)):
            changing[expr] = None
    return [x for x in changing if isinstance(x, Compute) and x.dtype.startswith("float")]
