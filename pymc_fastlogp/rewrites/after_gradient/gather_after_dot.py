r"""``(A[i] * B[j]).sum(axis=1) -> (A @ B.T)[i, j]``: gather entries of a product, not rows of its factors.

.. code::

    (A[i] * B[j]).sum(axis=1)  ->  (A @ B.T)[i, j]      i, j constant

.. math:: \sum_k A_{i_p k} B_{j_p k} = (A B^\top)_{i_p j_p}

PyTensor rewrites to the left, since of the product only some entries are needed. The gradient of a packed triangle
needs half of them: for ``z @ chol.T`` with :math:`n` correlated effects of :math:`k` groups, :math:`n (n + 1) / 2` rows of
:math:`k` entries are gathered from each factor, all of which lie apart in memory, to be read once. The product
has :math:`n^2 k` multiplications, of numbers that stay in the cache.

So it pays for long rows and where most entries are needed. It runs after the gradient, behind the rule of PyTensor
that it takes back. The terms may be added in another order, which moves the result by round-off; what is not finite in
an entry comes from the same terms.
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

# Pairs of rows and multiplications from which on the product is faster, by measurement, and how many of its entries may
# not be needed.
FEWEST_PAIRS, FEWEST_TERMS, LARGEST_SHARE = 50, 20_000, 3


@node_rewriter([Sum])
def local_gather_after_dot(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``(A[i] * B[j]).sum(axis=1) -> (A @ B.T)[i, j]`` where it pays."""
    [terms], [out] = node.inputs, node.outputs
    factors = operands(terms, ps.Mul)
    # A product adds up in its own type.
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
    entries = product[i, j]
    copy_stack_trace(out, [product, entries])
    return [entries] if out.type.is_super(entries.type) else None


def _gather(x: TensorVariable) -> tuple[TensorVariable, TensorVariable] | None:
    """Return the matrix and the constant rows that are gathered from it."""
    if not isinstance(x.owner_op, AdvancedSubtensor) or len(x.owner.inputs) != 2:
        return None
    matrix, rows = x.owner.inputs
    if matrix.type.ndim != 2 or x.owner.op.idx_list != (0,) or rows.type.ndim != 1:
        return None
    return (matrix, rows) if isinstance(rows, Constant) and rows.type.dtype != "bool" else None


def _pays(terms: TensorVariable, a: TensorVariable, b: TensorVariable) -> bool:
    """Return whether all lengths are known, and such that the product is faster."""
    pairs, length = terms.type.shape
    rows, lengths = zip(a.type.shape, b.type.shape, strict=True)
    if None in (pairs, length, *rows) or pairs < FEWEST_PAIRS or pairs * length < FEWEST_TERMS:
        return False
    # A factor of one column is repeated in the terms, which a product does not do.
    if 1 in lengths:
        return False
    types = {x.type.dtype for x in (terms, a, b)}
    return len(types) == 1 and types <= {*float_dtypes} and prod(rows) <= LARGEST_SHARE * pairs
