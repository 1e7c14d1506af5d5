r"""Gather entries of a matrix product, instead of rows of its factors.

.. code::

    (A[i] * B[j]).sum(axis=1)  ->  (A @ B.T)[i, j]      i, j constant

.. math:: \sum_k A_{i_p k} B_{j_p k} = (A B^\top)_{i_p j_p}

PyTensor rewrites to the left side, since only some entries of the product are needed. The gradient of a packed triangle needs
half of the entries. For ``z @ chol.T`` with :math:`n` correlated effects of :math:`k` groups, PyTensor gathers
:math:`n (n + 1) / 2` rows of :math:`k` entries from each factor. The product has :math:`n^2 k` multiplications of numbers in
the cache.

The order of additions may change, so results differ by round-off. An entry is NaN or infinite by the same terms.

When it applies
---------------
After the gradient, in mode NUMBA, behind PyTensor's opposite rule, to two float matrices of known shape. There must be at least
50 gathered rows, a third of the entries of the product, 8 entries in a row, and 20 000 multiplications.

When it refuses
---------------
Few or short rows, which a kernel multiplies in registers; boolean masks; a third factor; one broadcast column.
"""

from math import prod

import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.math import Sum, dot
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.elemwise import operands
from pymc_fastlogp.rewrites.replacement import replacement

# Measured limits for the product to be faster: the minimum number of row pairs, of entries of a row and of multiplications, and the
# maximum ratio of entries of the product to needed entries.
FEWEST_PAIRS, SHORTEST, FEWEST_TERMS, MAX_RATIO = 50, 8, 20_000, 3


@node_rewriter([Sum])
def local_gather_after_dot(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``(A[i] * B[j]).sum(axis=1) -> (A @ B.T)[i, j]`` where this saves time."""
    [terms], [out] = node.inputs, node.outputs
    factors = operands(terms, ps.Mul)
    # A product accumulates in its own dtype.
    dtypes = {terms.type.dtype, out.type.dtype, node.op.acc_dtype or out.type.dtype}
    if node.op.axis != (1,) or len(factors) != 2 or len(dtypes) > 1:
        return None
    gathers = [gather for x in factors if (gather := _gather(x)) is not None]
    if len(gathers) != 2:
        return None
    (a, i), (b, j) = gathers
    if not _pays(terms, a, b):
        return None
    product = dot(a, b.T)
    copy_stack_trace(out, product)
    return replacement(out, product[i, j])


def _gather(x: TensorVariable) -> tuple[TensorVariable, TensorVariable] | None:
    """Return ``A`` and ``i`` if ``x`` is ``A[i]`` with constant ``i``."""
    if not isinstance(x.owner_op, AdvancedSubtensor) or len(x.owner.inputs) != 2:
        return None
    matrix, rows = x.owner.inputs
    if matrix.type.ndim != 2 or x.owner.op.idx_list != (0,) or rows.type.ndim != 1:
        return None
    return (matrix, rows) if isinstance(rows, Constant) and rows.type.dtype != "bool" else None


def _pays(terms: TensorVariable, a: TensorVariable, b: TensorVariable) -> bool:
    """Return whether all lengths are known, and the product is faster."""
    pairs, length = terms.type.shape
    rows, lengths = zip(a.type.shape, b.type.shape, strict=True)
    if None in (pairs, length, *rows) or pairs < FEWEST_PAIRS or length < SHORTEST:
        return False
    if pairs * length < FEWEST_TERMS:
        return False
    # A factor of one column is broadcast in the terms, but not in a product.
    if 1 in lengths:
        return False
    types = {x.type.dtype for x in (terms, a, b)}
    return len(types) == 1 and types <= {*float_dtypes} and prod(rows) <= MAX_RATIO * pairs
