"""Diagonals: ExtractDiag as a view, Eye and FillDiagonal as index comparisons, AllocDiag as loops."""

from pytensor import scalar as ps
from pytensor.graph.basic import Apply
from pytensor.tensor.blockwise import Blockwise

from pymc_fastlogp.analysis.blockwise import core_op
from pymc_fastlogp.kernel.ir.arithmetic import (
    all_of,
    cast,
    const,
    domain_of,
    int64,
    minus,
    plus,
    switch,
    truth,
)
from pymc_fastlogp.kernel.ir.expressions import Expr, as_expr, as_size
from pymc_fastlogp.kernel.ir.loops import Error, Store
from pymc_fastlogp.kernel.lower.array import Array
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.lower.lengths import at_least, length_of, smaller
from pymc_fastlogp.kernel.lower.shape import lengths_of

UNEQUAL_LENGTHS = Error(ValueError, "All dimensions of input must be of equal length")


def lower_extract_diag(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Return a view in which a diagonal is the last axis."""
    [array] = inputs
    op = node.op
    down, right = (int64(max(offset, 0)) for offset in (-op.offset, op.offset))
    rows = minus(as_expr(array.shape[op.axis1]), down)
    columns = minus(as_expr(array.shape[op.axis2]), right)
    length = as_size(at_least(smaller(rows, columns), 0))
    others = [axis for axis in range(array.ndim) if axis not in (op.axis1, op.axis2)]

    def source_index(index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        *rest, i = index
        places = dict(zip(others, rest, strict=True))
        places[op.axis1] = plus(i, down)
        places[op.axis2] = plus(i, right)
        return tuple(places[axis] for axis in range(array.ndim))

    return [array.view((*(array.shape[axis] for axis in others), length), source_index)]


def lower_eye(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Return a matrix whose elements compare the row and column index, without a buffer."""
    *lengths, offset = inputs
    rows, columns = lengths_of(context, lengths)
    diagonal = as_expr(length_of(offset))
    dtype = node.outputs[0].type.dtype

    def at(index: tuple[Expr, ...]) -> Expr:
        return cast(truth(ps.eq, plus(index[0], diagonal), index[1]), dtype)

    return [Array((rows, columns), dtype, at)]


def lower_fill_diagonal(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Return an array whose elements select the number on the diagonal, without a buffer."""
    array, number = inputs
    first, *others = array.shape
    for length in others if array.ndim > 2 else ():
        context.require_equal(first, length, UNEQUAL_LENGTHS)

    def at(index: tuple[Expr, ...]) -> Expr:
        on_diagonal = all_of([truth(ps.eq, index[0], i) for i in index[1:]])
        return switch(on_diagonal, cast(number.at(()), array.dtype), array.at(index))

    return [Array(array.shape, array.dtype, at)]


def supports_alloc_diag(node: Apply) -> bool:
    """Return whether the new matrix is in the last two axes, possibly for each element of a batch."""
    op = core_op(node.op)
    is_batch = isinstance(node.op, Blockwise)
    ndim = len(node.op.inputs_sig[0]) if is_batch else node.inputs[0].type.ndim
    return (op.axis1, op.axis2) == (ndim - 1, ndim)


def lower_alloc_diag(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append a loop that stores zeros and a loop that stores the diagonal."""
    [diagonal] = inputs
    offset = core_op(node.op).offset
    down, right = (int64(max(k, 0)) for k in (-offset, offset))
    dtype = node.outputs[0].type.dtype
    length = as_size(plus(as_expr(diagonal.shape[-1]), int64(abs(offset))))
    zeros = context.store((*diagonal.shape[:-1], length, length), dtype, lambda _: const(0, dtype))
    domain, (*batch, i) = domain_of(diagonal.shape)
    place = (*batch, plus(i, down), plus(i, right))
    context.add(domain, Store(zeros.whole, place, diagonal.at((*batch, i))))
    return [zeros]
