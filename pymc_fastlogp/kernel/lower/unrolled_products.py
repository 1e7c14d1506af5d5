r"""Products with a small matrix as straight-line code: one expression per column, in a loop over the rows of the large matrix.

For :math:`C = A B` with a small :math:`B`

.. math::

    c_{ij} = \sum_{k \notin V_j} a_{ik} b_{kj}
             + \sum_{k \in V_j} 0 \, a_{ik} + \sum_{k \in V_j} b_{kj},

where :math:`V_j` is the set of :math:`k` whose :math:`b_{kj}` is a structural zero. A structural zero comes from a vector that is written into zeros at
constant positions (a triangle), possibly transposed or scaled by rows. It is nan if its scale is infinite or nan, so :math:`a_{ik} b_{kj}` is zero or nan.
The last two sums reproduce that nan:

- The third sum is loop-invariant.
- In a triangle the sets :math:`V_j` are nested, so the second sums of all columns share terms: :math:`n` multiplications instead of
  :math:`n (n - 1) / 2`.

The sums stay in registers. Loops that accumulate in memory would load and store each sum for every :math:`k`. A small :math:`A` is handled as
:math:`C^T = B^T A^T`.
"""

from functools import cache, reduce

import numpy as np
from numpy.typing import NDArray
from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.elemwise import Elemwise

from pymc_fastlogp.analysis.provenance import provenance
from pymc_fastlogp.kernel.ir.arithmetic import cast, const, domain_of, int64
from pymc_fastlogp.kernel.ir.expressions import Compute, Expr, Size
from pymc_fastlogp.kernel.ir.loops import Store
from pymc_fastlogp.kernel.lower.array import Array, buffer_array
from pymc_fastlogp.kernel.lower.blas_operands import transposed
from pymc_fastlogp.kernel.lower.context import Context

# Most entries of a matrix for which this is faster than loops and BLAS: in general, and if at least SHARE_OF_ZEROS of the entries are structural zeros
# (``python -m benchmarks.limits``). Larger matrices take long to compile.
LARGEST, LARGEST_WITH_ZEROS, SHARE_OF_ZEROS = 16, 144, 1 / 3


def lower(
    context: Context, node: Apply, left: Array, right: Array, is_for_loops: bool
) -> Array | None:
    """Append the product if one of the matrices is small and the other matrix is not smaller; return None otherwise.

    A large right matrix is read along contiguous rows. A large left matrix is read along columns, so more than a few columns pay
    only if loops would be used instead of BLAS.
    """
    if left.ndim != 2 or right.ndim != 2:
        return None
    dtype = node.outputs[0].type.dtype
    zeros = _zeros_of_small(node, 0, LARGEST_WITH_ZEROS, right.shape[1])
    if zeros is not None:
        return _product(context, dtype, transposed(right), transposed(left), zeros.T, step=-1)
    zeros = _zeros_of_small(node, 1, LARGEST if is_for_loops else LARGEST_WITH_ZEROS, left.shape[0])
    if zeros is not None:
        return _product(context, dtype, left, right, zeros)
    return None


def structural_zeros(x: Variable, most: int) -> NDArray[np.bool_] | None:
    """Return the structural zeros of an array as a mask; None if its shape is not static or it has more than ``most`` entries."""

    @cache
    def zeros_of(x: Variable) -> NDArray[np.bool_] | None:
        found = provenance(x, most)
        if found is None:
            return None
        is_zero = found.codes == 0
        for leaf, which, where in found.entries():
            if isinstance(leaf.owner_op, Elemwise) and isinstance(leaf.owner_op.scalar_op, ps.Mul):
                is_zero.flat[where] = of_product(leaf).flat[which]
        return is_zero

    def of_product(x: Variable) -> NDArray[np.bool_]:
        is_zero = np.zeros(x.type.shape, dtype=bool)
        for factor in map(zeros_of, x.owner.inputs):
            is_zero |= False if factor is None else factor
        return is_zero

    return zeros_of(x)


def _zeros_of_small(node: Apply, side: int, largest: int, others: Size) -> NDArray[np.bool_] | None:
    """Return the structural zeros of a factor; None if the factor is a vector, or too large absolutely or relative to ``others``."""
    zeros = structural_zeros(node.inputs[side], largest)
    if zeros is None or (isinstance(others, int) and others < max(2, *zeros.shape)):
        return None
    is_small = zeros.size <= LARGEST or zeros.mean() >= SHARE_OF_ZEROS
    return zeros if is_small and min(zeros.shape) > 1 else None


def _product(
    context: Context, dtype: str, a: Array, b: Array, zeros: NDArray[np.bool_], step: int = 1
) -> Array:
    """Append the loop over the rows of ``a``, which stores the transpose of the product if ``step`` is -1."""
    rows, (inner, columns) = a.shape[0], zeros.shape
    buffer = context.buffer(dtype, (rows, columns)[::step])
    domain, (i,) = domain_of((rows,))
    of_a = [cast(a.at((i, int64(k))), dtype) for k in range(inner)]
    # Rows with the most structural zeros first, so that the partial sums of columns are common subexpressions.
    order = np.argsort(-zeros.sum(axis=1), kind="stable")
    stores = []
    for j in range(columns):
        of_b = [cast(b.at((int64(k), int64(j))), dtype) for k in range(inner)]
        voided = [k for k in order if zeros[k, j]]
        terms = [_times(const(0, dtype), of_a[k]) for k in voided]
        if voided:
            terms.append(_sum([of_b[k] for k in voided]))
        start = [_sum(terms)] if terms else []
        products = [_times(of_a[k], of_b[k]) for k in range(inner) if not zeros[k, j]]
        stores.append(Store(buffer, (i, int64(j))[::step], _sum([*start, *products])))
    context.add(domain, *stores)
    return buffer_array(buffer)


def _times(x: Expr, y: Expr) -> Expr:
    return Compute(ps.mul, (x, y), x.dtype)


def _sum(terms: list[Expr]) -> Expr:
    return reduce(lambda x, y: Compute(ps.add, (x, y), x.dtype), terms)
