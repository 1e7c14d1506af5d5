r"""``LowerInverse``: the lower triangle of the inverse of a matrix, from its Cholesky factor.

Large matrices are inverted in place by LAPACK. It uses column-major order: the factor ``L`` in C order is ``U = L^T`` to LAPACK, and the upper triangle that LAPACK
writes is the lower triangle in C order.

Small matrices become straight-line code, in a loop over the batch. For each column :math:`j` of :math:`M = L^{-1}` and each row :math:`i > j`

.. math::

    m_{jj} = 1 / l_{jj}, \quad m_{ij} = -\Bigl(\sum_{j \le k < i} l_{ik} m_{kj}\Bigr) / l_{ii}, \qquad
    (L L^\top)^{-1}_{ij} = \sum_{k \ge i} m_{ki} m_{kj} \quad (i \ge j).
"""

from dataclasses import replace
from functools import reduce

from pytensor import scalar as ps
from pytensor.graph.basic import Apply

from pymc_fastlogp.kernel.ir.arithmetic import ZERO, const, domain_of, int64, plus, switch, truth
from pymc_fastlogp.kernel.ir.expressions import Compute, Expr, as_expr
from pymc_fastlogp.kernel.ir.loops import INFO, RESULT, Store
from pymc_fastlogp.kernel.lower import dense
from pymc_fastlogp.kernel.lower.array import Array, buffer_array
from pymc_fastlogp.kernel.lower.blas_operands import leading_dimension, library_call
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.lower.lapack import NAN, NOT_SQUARE, is_regular
from pymc_fastlogp.kernel.lower.linalg import (
    LARGEST_CHOLESKY,
    if_all,
    is_small,
    minus_products,
    quotient_of,
    rows_of,
    supports_library,
)

ABOVE = const(0, "float64")


def supports(node: Apply) -> bool:
    """Return whether the factor is one matrix for LAPACK, or a batch of small matrices."""
    [factor] = node.inputs
    if is_small(factor.type.shape[-2:], LARGEST_CHOLESKY):
        return factor.type.dtype == "float64"
    return factor.type.ndim == 2 and supports_library(node)


def lower(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append a copy of the factor and the call that inverts it, or straight-line code."""
    [factor] = inputs
    if is_small(factor.shape[-2:], LARGEST_CHOLESKY):
        return [_straight_line_inverse(context, factor)]
    rows, n = factor.shape
    context.require_equal(n, rows, NOT_SQUARE)
    can_be_inverted = is_regular(context, factor)
    if dense.is_tiled(rows, n):
        return [dense.inverse(context, factor, can_be_inverted.at(()))]

    def triangle(index: tuple[Expr, ...]) -> Expr:
        # From nan, LAPACK computes nothing but nan.
        value = switch(can_be_inverted.at(()), factor.at(index), NAN)
        return switch(truth(ps.ge, *index), value, const(0.0, "float64"))

    result = context.store(factor.shape, "float64", triangle)
    call = library_call(result, (), "dpotri", ("U", n, RESULT, leading_dimension(n), INFO))
    # A Call needs an element that records failure. It is never set: `dpotri` fails only for a zero on the diagonal.
    corner = (ZERO, plus(as_expr(n), int64(-1)))
    context.add((), replace(call, failed=corner))
    return [result]


def _straight_line_inverse(context: Context, factor: Array) -> Array:
    """Append the straight-line code, in a loop over the batch."""
    n = rows_of(factor)
    domain, batch = domain_of(factor.shape[:-2])

    def of_factor(i: int, j: int) -> Expr:
        return factor.at((*batch, int64(i), int64(j)))

    inverse: dict[tuple[int, int], Expr] = {}
    for j in range(n):
        inverse[j, j] = quotient_of(const(1, "float64"), of_factor(j, j))
        for i in range(j + 1, n):
            first, *others = [(of_factor(i, k), inverse[k, j]) for k in range(j, i)]
            start = Compute(ps.neg, (_product(*first),), "float64")
            inverse[i, j] = quotient_of(minus_products(start, others), of_factor(i, i))
    is_regular = [truth(ps.neq, of_factor(j, j), const(0, "float64")) for j in range(n)]
    buffer = context.buffer("float64", factor.shape)
    stores = []
    for i in range(n):
        for j in range(n):
            products = [_product(inverse[k, i], inverse[k, j]) for k in range(i, n) if j <= i]
            value = if_all(is_regular, reduce(_sum, products)) if products else ABOVE
            stores.append(Store(buffer, (*batch, int64(i), int64(j)), value))
    context.add(domain, *stores)
    return buffer_array(buffer)


def _product(x: Expr, y: Expr) -> Expr:
    return Compute(ps.mul, (x, y), "float64")


def _sum(x: Expr, y: Expr) -> Expr:
    return Compute(ps.add, (x, y), "float64")
