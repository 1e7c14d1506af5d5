r"""Products with a small matrix: one expression for each of its columns, in a loop over the rows of the other.

For :math:`C = A B` with a small :math:`B`

.. math::

    c_{ij} = \sum_{k \notin V_j} a_{ik} b_{kj}
             + \sum_{k \in V_j} 0 \, a_{ik} + \sum_{k \in V_j} b_{kj},

where :math:`V_j` are the :math:`k` whose :math:`b_{kj}` is void (:mod:`~pymc_fastlogp.kernel.lower.structural_zeros`). Their products
:math:`a_{ik} b_{kj}` are zero too, or nan where one of the two is not finite: so are the last two sums. The third is the
same for all rows. Of a triangle the :math:`V_j` lie within each other, and the second sums of all columns are
parts of one, :math:`n` multiplications instead of :math:`n (n - 1) / 2`.

Sums stay in registers, which loops that accumulate in memory load and store for each :math:`k`.
A small :math:`A` is that of :math:`C^T = B^T A^T`.
"""

from functools import reduce

import numpy as np
from numpy.typing import NDArray
from pytensor import scalar as ps
from pytensor.graph.basic import Apply

from pymc_fastlogp.kernel.ir.arithmetic import cast, const, domain_of, int64
from pymc_fastlogp.kernel.ir.expressions import Compute, Expr, Size
from pymc_fastlogp.kernel.ir.loops import Store
from pymc_fastlogp.kernel.lower.array import Array, of_buffer
from pymc_fastlogp.kernel.lower.blas_operands import transposed
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.lower.structural_zeros import voids

# Entries of a matrix up to which this is faster than loops and BLAS, and of a matrix of which the given part is void
# (``python -m benchmarks.limits``). More take long to compile.
LARGEST, LARGEST_VOID, VOID_PART = 16, 144, 1 / 3


def lower(
    context: Context, node: Apply, left: Array, right: Array, is_for_loops: bool
) -> Array | None:
    """Append the product if one of the matrices is small and the other one is not smaller.

    Rows of the other are neighbors in memory if it is the right one. If it is the left one, more than a few columns
    cost what loops cost, for which the product has to be small as a whole.
    """
    if left.ndim != 2 or right.ndim != 2:
        return None
    dtype = node.outputs[0].type.dtype
    missing = _voids_of_small(node, 0, LARGEST_VOID, right.shape[1])
    if missing is not None:
        return _product(context, dtype, transposed(right), transposed(left), missing.T, step=-1)
    missing = _voids_of_small(node, 1, LARGEST if is_for_loops else LARGEST_VOID, left.shape[0])
    if missing is not None:
        return _product(context, dtype, left, right, missing)
    return None


def _voids_of_small(node: Apply, side: int, largest: int, others: Size) -> NDArray[np.bool_] | None:
    """Return which entries are void of a factor that is small, also beside the other; None if it is not, or a vector."""
    missing = voids(node.inputs[side], largest)
    if missing is None or (isinstance(others, int) and others < max(2, *missing.shape)):
        return None
    is_small = missing.size <= LARGEST or missing.mean() >= VOID_PART
    return missing if is_small and min(missing.shape) > 1 else None


def _product(
    context: Context, dtype: str, a: Array, b: Array, missing: NDArray[np.bool_], step: int = 1
) -> Array:
    """Append the loop over the rows of ``a``; the result is stored as its transpose if ``step`` is -1."""
    rows, (inner, columns) = a.shape[0], missing.shape
    buffer = context.buffer(dtype, (rows, columns)[::step])
    domain, (i,) = domain_of((rows,))
    of_a = [cast(a.at((i, int64(k))), dtype) for k in range(inner)]
    # What is missing in most columns comes first, so that sums over it begin alike.
    order = np.argsort(-missing.sum(axis=1), kind="stable")
    stores = []
    for j in range(columns):
        of_b = [cast(b.at((int64(k), int64(j))), dtype) for k in range(inner)]
        voided = [k for k in order if missing[k, j]]
        terms = [_times(const(0, dtype), of_a[k]) for k in voided]
        if voided:
            terms.append(_sum([of_b[k] for k in voided]))
        start = [_sum(terms)] if terms else []
        products = [_times(of_a[k], of_b[k]) for k in range(inner) if not missing[k, j]]
        stores.append(Store(buffer, (i, int64(j))[::step], _sum([*start, *products])))
    context.add(domain, *stores)
    return of_buffer(buffer)


def _times(x: Expr, y: Expr) -> Expr:
    return Compute(ps.mul, (x, y), x.dtype)


def _sum(terms: list[Expr]) -> Expr:
    return reduce(lambda x, y: Compute(ps.add, (x, y), x.dtype), terms)
