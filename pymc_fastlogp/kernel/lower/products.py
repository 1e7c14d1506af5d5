"""Dot of small arrays, also batched by Blockwise, as loops that accumulate."""

from math import prod

from pytensor import scalar as ps
from pytensor.graph.basic import Apply

from pymc_fastlogp.kernel.expressions import cast, const, domain_of
from pymc_fastlogp.kernel.loops import Accumulate, Compute, Expr
from pymc_fastlogp.kernel.lower.array import Array
from pymc_fastlogp.kernel.lower.broadcast import broadcast_index, broadcast_leading
from pymc_fastlogp.kernel.lower.context import Context

# Multiplications up to which loops are not slower than a call of BLAS. BLAS multiplies two matrices up to twice as fast,
# which is worth its call from here on. A matrix and a vector take the same time with both; beyond the
# cache of a core, BLAS may use more cores.
LARGEST, LARGEST_WITH_VECTOR = 2**15, 2**17


def supports(node: Apply) -> bool:
    """Whether the lengths are static and small."""
    left, right = (v.type.shape for v in node.inputs)
    sizes = (*left[-2:], right[-1])
    largest = LARGEST_WITH_VECTOR if 1 in (left[-2], right[-1]) else LARGEST
    return None not in sizes and prod(sizes) <= largest


def lower(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append the loops over the batch, the rows of the first, the inner axis, the columns of the second."""
    left, right = inputs
    dtype = node.outputs[0].type.dtype
    batch = broadcast_leading(context, left.shape[:-2], right.shape[:-2])
    rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    result = context.store((*batch, rows, columns), dtype, lambda _: const(0, dtype))
    domain, (*b, i, k, j) = domain_of((*batch, rows, inner, columns))
    leading = tuple(b)
    factors: tuple[Expr, Expr] = (
        cast(left.at((*broadcast_index(left.shape[:-2], leading), i, k)), dtype),
        cast(right.at((*broadcast_index(right.shape[:-2], leading), k, j)), dtype),
    )
    assert result.buffer is not None
    product = Compute(ps.mul, factors, dtype)
    context.add(domain, Accumulate(result.buffer, (*leading, i, j), ps.add, product))
    return [result]
