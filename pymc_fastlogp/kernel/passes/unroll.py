"""Short axes become straight-line code in the loop over the long one.

The cut points of an ordered regression, the classes of a categorical one, or the effects of a group that a
Cholesky factor correlates, make loops over ``rows x k`` that nothing could fuse with the loops over rows,
and vectors of k lanes. With one statement for each of the k they are loops over rows like all others, and
scratch of that shape stays in registers. Arrays that are not scratch are then read k elements apart
(:mod:`pymc_fastlogp.kernel.emit.scope`). Which axes: :mod:`pymc_fastlogp.kernel.passes.short_axes`;
how many of a loop: :mod:`pymc_fastlogp.kernel.passes.unroll_factor`.
"""

from dataclasses import replace
from itertools import batched

from pymc_fastlogp.kernel.ir.arithmetic import fold_constants, int64
from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Expr, Index
from pymc_fastlogp.kernel.ir.loops import Accumulate, Loop, Program, Statement
from pymc_fastlogp.kernel.ir.substitute import substitute
from pymc_fastlogp.kernel.ir.traversal import depends_on, is_ordered, with_loops
from pymc_fastlogp.kernel.passes.short_axes import pays, rows_that_stay, short_axes
from pymc_fastlogp.kernel.passes.unroll_factor import axes_that_fit, taken_apart


def unroll(program: Program) -> Program:
    """Return the program with short axes unrolled."""
    tables, apart = rows_that_stay(program), taken_apart(program)

    def unrolled(loop: Loop) -> list[Loop]:
        return [_unrolled(loop, tables, axes_that_fit(loop, apart))]

    return replace(program, steps=with_loops(program.steps, unrolled))


def _unrolled(loop: Loop, tables: frozenset[Buffer], fitting: int) -> Loop:
    """Return a loop of which some of the short axes that fit, the inner ones, are unrolled."""
    axis = _axis_to_unroll(loop, tables, fitting)
    if axis is None:
        return loop
    length = loop.domain[axis]
    assert isinstance(length, int)
    domain = (*loop.domain[:axis], *loop.domain[axis + 1 :])
    body = (at for s in loop.body for at in _together(s, _at_each(s, axis, length), axis))
    return _unrolled(replace(loop, domain=domain, body=tuple(body)), tables, fitting - 1)


def _axis_to_unroll(loop: Loop, tables: frozenset[Buffer], fitting: int) -> int | None:
    """Return the axis to unroll, None if there is none."""
    if is_ordered(loop):
        return None
    axes = short_axes(loop)
    inner = axes[len(axes) - fitting :]
    paying = (axis for axis, long in inner if pays(loop, axis, long, tables))
    return next(paying, None)


def _together(statement: Statement, copies: list[Statement], axis: int) -> list[Statement]:
    """Return the copies of a statement, as one where all accumulate in the same element: each would have partial results of its own."""
    if not isinstance(statement, Accumulate) or depends_on(statement.index, Index(axis)):
        return copies
    adding = [copy for copy in copies if isinstance(copy, Accumulate)]
    values = [copy.value for copy in adding]
    while len(values) > 1:
        pairs = batched(values, 2)
        values = [Compute(statement.op, x, x[0].dtype) if len(x) > 1 else x[0] for x in pairs]
    return [replace(copy, value=value) for copy, value in zip(adding, values, strict=False)]


def _at_each(statement: Statement, axis: int, length: int) -> list[Statement]:
    """Return a statement for each position along an axis."""
    copies = list[Statement]()
    for k in range(length):

        def at_k(expr: Expr, k: int = k) -> Expr | None:
            if isinstance(expr, Index):
                return int64(k) if expr.axis == axis else Index(expr.axis - (expr.axis > axis))
            return fold_constants(expr)

        copies += substitute((statement,), at_k)
    return copies
