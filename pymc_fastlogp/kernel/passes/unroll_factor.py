"""Unroll factor of a loop: the short axes to unroll within a limit of copied statements.

Code is as long as the product of the lengths, and LLVM takes seconds for some hundred copies of a function. The inner axes
come first; what does not fit stays a loop over a long and a short axis.

The entries of small matrices may be more. Their factors and products are straight-line code (:mod:`pymc_fastlogp.kernel.lower.linalg`), which
takes matrices apart into entries: they stay in registers if what they are made of, and what is made of them, is that too.
"""

from collections.abc import Iterator
from itertools import accumulate
from operator import mul

from pymc_fastlogp.kernel.ir.expressions import Buffer, Const
from pymc_fastlogp.kernel.ir.loops import Loop, Program
from pymc_fastlogp.kernel.ir.traversal import elements, loops_in
from pymc_fastlogp.kernel.passes.short_axes import (
    LONGEST,
    arrays_over,
    short_axes,
    with_those_that_share,
)

# Copies of a statement by several axes, and of one for the entries of matrices, at most. An exponential and its sum over 6 x 6 entries take LLVM
# 2 s, over 10 x 10 entries 7 s. Matrices of 12 rows are the largest whose factors are straight-line code.
MOST_COPIES, MOST_ENTRIES = 36, 144


def taken_apart(program: Program) -> frozenset[Buffer]:
    """Return the arrays of matrices of which a loop takes single entries, and those that loops over several short axes share with them."""
    loops = list(loops_in(program.steps))
    of_matrices = [frozenset(_arrays(loop)) for loop in loops if len(short_axes(loop)) > 1]
    apart = frozenset[Buffer]().union(*map(_single_entries, loops))
    return with_those_that_share(apart, of_matrices)


def _single_entries(loop: Loop) -> Iterator[Buffer]:
    """Yield the arrays of which a loop takes an entry at a given row and column."""
    for buffer, index in elements(loop):
        given = [n for i, n in zip(index, buffer.shape, strict=True) if isinstance(i, Const)]
        if len([n for n in given if n != 1]) > 1:
            yield buffer


def _arrays(loop: Loop) -> Iterator[Buffer]:
    for axis, long in short_axes(loop):
        yield from (buffer for buffer, _ in arrays_over(loop, axis, long))


def axes_that_fit(loop: Loop, apart: frozenset[Buffer]) -> int:
    """Return how many of the short axes of a loop, the inner ones, may become straight-line code."""
    is_of_entries = any(buffer in apart for buffer in _arrays(loop))
    most = MOST_ENTRIES if is_of_entries else MOST_COPIES
    lengths = (loop.domain[axis] for axis, _ in reversed(short_axes(loop)))
    # Axes that are never unrolled make no copies.
    factors = (n if isinstance(n, int) and n <= LONGEST else 1 for n in lengths)
    return sum(copies <= most for copies in accumulate(factors, mul))
