"""Unrolling: short axes of a loop with a long axis become straight-line code in the loop over the long axis.

.. code-block:: text

    loop rows 2:                              loop rows:
        y += f(x[i0], c[i1])            ->        y += f(x[i0], c[0]) + f(x[i0], c[1])

The cut points of an ordered regression, the classes of a categorical response, or group effects that are correlated by a
Cholesky factor give loops over ``(rows, k)``. Such loops cannot be fused with loops over rows, and their vectors have only ``k`` lanes.
With one statement for each of the ``k`` positions they are loops over rows like all others, and
scratch buffers of that shape stay in registers. Other arrays are then read ``k`` elements apart, unless
:mod:`~pymc_fastlogp.kernel.passes.layout` transposes them.

The axes to unroll are chosen by :mod:`~pymc_fastlogp.kernel.passes.short_axes`. Of several short axes, the inner axes are unrolled while the
number of copies stays within a limit. The length of the code is the product of the lengths, and
LLVM takes seconds for a few hundred copies of a function.

The limit is larger for entries of small matrices whose factors and products are straight-line code
(:mod:`pymc_fastlogp.kernel.lower.linalg`). Such code takes single entries of a matrix. They stay in registers only if the loops that
produce and consume the entries are unrolled, too.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, batched
from operator import mul

from pymc_fastlogp.kernel.ir.arithmetic import fold_constants, int64
from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Const, Expr, Index
from pymc_fastlogp.kernel.ir.loops import Accumulate, Loop, Program, Statement
from pymc_fastlogp.kernel.ir.substitute import substitute
from pymc_fastlogp.kernel.ir.traversal import depends_on, elements, is_ordered, loops_in, with_loops
from pymc_fastlogp.kernel.passes.short_axes import (
    LONGEST,
    arrays_along,
    closure_over_groups,
    is_worth_unrolling,
    rows_to_keep,
    short_axes,
)
from pymc_fastlogp.ops import MAX_ROWS_UNROLLED_CHOLESKY

# Largest number of copies of a statement by several short axes, and of a statement for the entries of small matrices. LLVM takes
# 2 s for an exponential and its sum over 6 x 6 entries, and 7 s over 10 x 10 entries.
MOST_COPIES, MOST_ENTRIES = 36, MAX_ROWS_UNROLLED_CHOLESKY**2


def unroll(program: Program) -> Program:
    """Unroll short axes."""
    kept, of_entries = rows_to_keep(program), arrays_of_entries(program)

    def unrolled(loop: Loop) -> list[Loop]:
        return [_unrolled(loop, kept, n_axes_to_unroll(loop, of_entries))]

    return replace(program, steps=with_loops(program.steps, unrolled))


def _unrolled(loop: Loop, kept: frozenset[Buffer], fitting: int) -> Loop:
    """Unroll up to ``fitting`` of the inner short axes of a loop."""
    axis = _axis_to_unroll(loop, kept, fitting)
    if axis is None:
        return loop
    length = loop.domain[axis]
    assert isinstance(length, int)
    domain = (*loop.domain[:axis], *loop.domain[axis + 1 :])
    body = (at for s in loop.body for at in _join_accumulations(s, _copies(s, axis, length), axis))
    return _unrolled(replace(loop, domain=domain, body=tuple(body)), kept, fitting - 1)


def _axis_to_unroll(loop: Loop, kept: frozenset[Buffer], fitting: int) -> int | None:
    """Return the next axis to unroll, None if no axis is left."""
    if is_ordered(loop):
        return None
    axes = short_axes(loop)
    inner = axes[len(axes) - fitting :]
    paying = (axis for axis, long in inner if is_worth_unrolling(loop, axis, long, kept))
    return next(paying, None)


def _join_accumulations(
    statement: Statement, copies: list[Statement], axis: int
) -> list[Statement]:
    """Join copies that accumulate in the same element into one statement, which then has one partial result instead of one per copy."""
    if not isinstance(statement, Accumulate) or depends_on(statement.index, Index(axis)):
        return copies
    adding = [copy for copy in copies if isinstance(copy, Accumulate)]
    values = [copy.value for copy in adding]
    while len(values) > 1:
        pairs = batched(values, 2)
        values = [Compute(statement.op, x, x[0].dtype) if len(x) > 1 else x[0] for x in pairs]
    return [replace(copy, value=value) for copy, value in zip(adding, values, strict=False)]


def _copies(statement: Statement, axis: int, length: int) -> list[Statement]:
    """Return a copy of a statement for each position along an axis."""
    copies = list[Statement]()
    for k in range(length):

        def at_k(expr: Expr, k: int = k) -> Expr | None:
            if isinstance(expr, Index):
                return int64(k) if expr.axis == axis else Index(expr.axis - (expr.axis > axis))
            return fold_constants(expr)

        copies += substitute((statement,), at_k)
    return copies


def arrays_of_entries(program: Program) -> frozenset[Buffer]:
    """Return the arrays of which a loop takes single entries, and all arrays that share loops over several short axes with these."""
    loops = list(loops_in(program.steps))
    of_matrices = [frozenset(_arrays(loop)) for loop in loops if len(short_axes(loop)) > 1]
    of_entries = frozenset[Buffer]().union(*map(_single_entries, loops))
    return closure_over_groups(of_entries, of_matrices)


def _single_entries(loop: Loop) -> Iterator[Buffer]:
    """Yield the arrays of which a loop takes an entry at a constant row and column."""
    for buffer, index in elements(loop):
        given = [n for i, n in zip(index, buffer.shape, strict=True) if isinstance(i, Const)]
        if len([n for n in given if n != 1]) > 1:
            yield buffer


def _arrays(loop: Loop) -> Iterator[Buffer]:
    for axis, long in short_axes(loop):
        yield from (buffer for buffer, _ in arrays_along(loop, axis, long))


def n_axes_to_unroll(loop: Loop, of_entries: frozenset[Buffer]) -> int:
    """Return the number of inner short axes of a loop that can be unrolled within the limit of copies."""
    is_of_entries = any(buffer in of_entries for buffer in _arrays(loop))
    most = MOST_ENTRIES if is_of_entries else MOST_COPIES
    lengths = (loop.domain[axis] for axis, _ in reversed(short_axes(loop)))
    # Long axes are never unrolled, so they make no copies.
    factors = (n if isinstance(n, int) and n <= LONGEST else 1 for n in lengths)
    return sum(copies <= most for copies in accumulate(factors, mul))
