r"""Matrix products, also batched by Blockwise: small products as accumulating loops, others by BLAS.

BLAS uses column-major order: a matrix in C order is the transpose to BLAS. Hence

.. math::

    C = A B \quad \text{is computed as} \quad C^T = B^T A^T.
"""

from math import prod

from pytensor import scalar as ps
from pytensor.graph.basic import Apply

from pymc_fastlogp.kernel.ir.arithmetic import cast, const, domain_of
from pymc_fastlogp.kernel.ir.expressions import Compute, Expr, Size
from pymc_fastlogp.kernel.ir.loops import RESULT, Accumulate, Error
from pymc_fastlogp.kernel.lower import unrolled_products
from pymc_fastlogp.kernel.lower.array import Array, buffer_array
from pymc_fastlogp.kernel.lower.blas_operands import (
    leading_dimension,
    library_call,
    operand,
    transposed,
)
from pymc_fastlogp.kernel.lower.broadcast import broadcast_index, broadcast_leading
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.native import blas

# Most multiplications for which loops are as fast as BLAS, if one axis has at most SHORT entries. Otherwise BLAS is up to three times as fast.
# With a vector, both are equally fast; BLAS can use several cores if the matrix does not fit into the cache of one core
# (``python -m benchmarks.limits``).
LARGEST, SHORT, LARGEST_WITH_VECTOR = 2**15, 12, 2**17

MISMATCH = Error(ValueError, "gemm: operands have mismatched contraction dimensions")
ONE = const(1.0, "float64")


def supports(node: Apply) -> bool:
    """Return whether the lengths are static and small, or BLAS supports the dtypes."""
    return _is_small(_static_sizes(node)) or _is_for_blas(node)


def lower(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append straight-line code, loops or BLAS calls, in loops over the batch."""
    left, right = inputs
    context.require_equal(left.shape[-1], right.shape[-2], MISMATCH)
    batch = broadcast_leading(context, left.shape[:-2], right.shape[:-2])
    sizes = (left.shape[-2], left.shape[-1], right.shape[-1])
    result = unrolled_products.lower(context, node, left, right, is_for_loops=_is_small(sizes))
    if result is not None:
        return [result]
    # Types can have static lengths that the arrays lack, so `supports` may hold although `_is_small` does not.
    if _is_small(sizes) or _is_of_vectors(sizes) or not _is_for_blas(node):
        return [_loops(context, node.outputs[0].type.dtype, left, right, batch)]
    if sizes[0] == 1:
        return [transposed(_with_vector(context, transposed(right), transposed(left), batch))]
    if sizes[2] == 1:
        return [_with_vector(context, left, right, batch)]
    return [_of_matrices(context, left, right, batch)]


def _is_for_blas(node: Apply) -> bool:
    types = {variable.type.dtype for variable in (*node.inputs, *node.outputs)}
    return types == {"float64"} and blas.is_available()


def _static_sizes(node: Apply) -> tuple[int | None, ...]:
    left, right = (v.type.shape for v in node.inputs)
    return (left[-2], left[-1], right[-1])


def _is_small(sizes: tuple[Size | None, ...]) -> bool:
    """Return whether loops are as fast as BLAS for these numbers of rows, inner entries and columns."""
    static = [size for size in sizes if isinstance(size, int)]
    if len(static) < len(sizes):
        return False
    if 1 in (sizes[0], sizes[2]):
        return prod(static) <= LARGEST_WITH_VECTOR
    return min(static) <= SHORT and prod(static) <= LARGEST


def _is_of_vectors(sizes: tuple[Size, ...]) -> bool:
    """Return whether this is an inner or outer product, for which loops read each element once."""
    rows, inner, columns = sizes
    return inner == 1 or rows == columns == 1


def _loops(
    context: Context, dtype: str, left: Array, right: Array, batch: tuple[Size, ...]
) -> Array:
    """Append a loop over batch, rows, inner axis and columns that accumulates the product."""
    rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    result = context.store((*batch, rows, columns), dtype, lambda _: const(0, dtype))
    domain, (*b, i, k, j) = domain_of((*batch, rows, inner, columns))
    leading = tuple(b)
    factors: tuple[Expr, Expr] = (
        cast(left.at((*broadcast_index(left.shape[:-2], leading), i, k)), dtype),
        cast(right.at((*broadcast_index(right.shape[:-2], leading), k, j)), dtype),
    )
    product = Compute(ps.mul, factors, dtype)
    context.add(domain, Accumulate(result.whole, (*leading, i, j), ps.add, product))
    return result


def _with_vector(context: Context, matrix: Array, vector: Array, batch: tuple[Size, ...]) -> Array:
    """Append ``gemv`` calls that add to zeros, since BLAS does not write the result if there are no columns."""
    rows, inner = matrix.shape[-2:]
    result = context.store((*batch, rows, 1), "float64", lambda _: const(0.0, "float64"))
    domain, b = domain_of(batch)
    a, x = operand(context, matrix, b), operand(context, vector, b)
    shape = ("N", rows, inner) if a.is_transposed else ("T", inner, rows)
    arguments = (*shape, ONE, a.first, a.stride, x.first, x.stride, ONE, RESULT, 1)
    context.add(domain, library_call(result, b, "dgemv", arguments))
    return result


def _of_matrices(context: Context, left: Array, right: Array, batch: tuple[Size, ...]) -> Array:
    """Append ``gemm`` calls."""
    rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    result = buffer_array(context.buffer("float64", (*batch, rows, columns)))
    domain, b = domain_of(batch)
    first, second = operand(context, right, b), operand(context, left, b)
    letters = ("T" if matrix.is_transposed else "N" for matrix in (first, second))
    factors = (first.first, first.stride, second.first, second.stride)
    zero = const(0.0, "float64")
    result_stride = leading_dimension(columns)
    arguments = (*letters, columns, rows, inner, ONE, *factors, zero, RESULT, result_stride)
    context.add(domain, library_call(result, b, "dgemm", arguments))
    return result
