"""Array layout: reorder the axes of scratch buffers and constants, so that lanes are neighbors in memory.

.. code-block:: text

    loop rows:                           loop rows:
        b[i0, 0] = %3               ->       b[0, i0] = %3
        b[i0, 1] = %4                        b[1, i0] = %4

Unrolling (:mod:`~pymc_fastlogp.kernel.passes.unroll`) makes vectors run along the rows of an array of shape ``(rows, k)``.
The lanes are then k elements apart, and each of the k columns takes a gather. With the axis of the vectors last, the lanes are neighbors.

This is possible for scratch buffers and constants, which are not visible outside the kernel. A constant that is passed as an input is transposed by
the caller (:mod:`pymc_fastlogp.kernel.graph.arguments`). Operands of library calls keep their layout.
"""

from collections import defaultdict
from dataclasses import replace
from math import inf, prod

import numpy as np

from pymc_fastlogp.kernel.ir.affine import coefficient
from pymc_fastlogp.kernel.ir.expressions import Buffer, Expr, Index, Load, Role
from pymc_fastlogp.kernel.ir.loops import Check, Loop, Program, Statement
from pymc_fastlogp.kernel.ir.substitute import substitute, substitute_in_element
from pymc_fastlogp.kernel.ir.traversal import (
    depends_on,
    elements,
    is_call,
    loops_in,
    with_loops,
)


def transpose_for_vectors(program: Program) -> Program:
    """Move the axis along which vectors run to the end, in scratch buffers and constants."""
    axes = axes_of_vectors(program)
    transposed = {
        buffer: _transposed(buffer, axes[buffer])
        for buffer in (*program.scratch, *program.constants)
        if buffer in axes
    }
    if not transposed:
        return program

    def moved(expr: Expr) -> Expr | None:
        if not isinstance(expr, Load) or expr.buffer not in transposed:
            return None
        return Load(transposed[expr.buffer], moved_last(expr.index, axes[expr.buffer]))

    def rewritten(statement: Statement) -> Statement:
        if isinstance(statement, Check) or statement.buffer not in transposed:
            return statement
        index = moved_last(statement.index, axes[statement.buffer])
        return replace(statement, buffer=transposed[statement.buffer], index=index)

    def changed(loop: Loop) -> list[Loop]:
        body = tuple(map(rewritten, substitute(loop.body, moved)))
        if loop.when is None:
            return [replace(loop, body=body)]
        [when] = substitute_in_element((loop.when,), moved)
        return [replace(loop, body=body, when=when)]

    return replace(
        program,
        steps=with_loops(program.steps, changed),
        scratch=tuple(transposed.get(buffer, buffer) for buffer in program.scratch),
        constants=tuple(transposed.get(buffer, buffer) for buffer in program.constants),
    )


def axes_of_vectors(program: Program) -> dict[Buffer, int]:
    """Map each array to the axis along which most vectors run, if this axis is not the last.

    Arrays of one axis and operands of library calls are excluded.
    """
    counts: dict[Buffer, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    fixed = set[Buffer]()
    for loop in loops_in(program.steps):
        for buffer, index in elements(loop):
            if is_call(loop):
                fixed.add(buffer)
            elif (axis := _axis_along(index, len(loop.domain) - 1)) is not None:
                counts[buffer][axis] += _length(loop)
    # Ties go to the last axis.
    best = {
        buffer: max(sorted(found, reverse=True), key=lambda axis: found[axis])
        for buffer, found in counts.items()
    }
    return {
        buffer: axis
        for buffer, axis in best.items()
        if buffer not in fixed and any(size != 1 for size in buffer.shape[axis + 1 :])
    }


def _axis_along(index: tuple[Expr, ...], inner: int) -> int | None:
    """Return the axis of an index along which lanes differ by one position, None without such an axis."""
    along = [axis for axis, i in enumerate(index) if depends_on([i], Index(inner))]
    if len(along) != 1 or abs(coefficient(index[along[0]], Index(inner)) or 0) != 1:
        return None
    return along[0]


def _length(loop: Loop) -> float:
    """Return the number of iterations of a loop; infinity if a length is dynamic."""
    return prod(size if isinstance(size, int) else inf for size in loop.domain)


def moved_last[T](items: tuple[T, ...], axis: int) -> tuple[T, ...]:
    """Return per-axis items with the item of one axis moved to the end."""
    return (*items[:axis], *items[axis + 1 :], items[axis])


def _transposed(buffer: Buffer, axis: int) -> Buffer:
    shape = moved_last(buffer.shape, axis)
    if buffer.role is not Role.CONSTANT:
        return replace(buffer, shape=shape)
    lengths = [size for size in buffer.shape if isinstance(size, int)]
    data = np.frombuffer(buffer.data, buffer.dtype).reshape(lengths)
    return replace(buffer, shape=shape, data=np.moveaxis(data, axis, -1).tobytes())
