r"""Take the diagonal of a product without the product.

.. code::

    diagonal(A @ A.T)  ->  sqr(A).sum(axis=1)
    diagonal(A @ B)    ->  (A * B.T).sum(axis=1)

.. math:: (A B)_{ii} = \sum_k A_{ik} B_{ki},

:math:`n m` multiplications instead of :math:`n^2 m`, and a gradient without products of matrices. It is how
``LKJCholeskyCov`` finds the standard deviations, ``sqrt(diag(chol @ chol.T))``, which cost nothing
unless the model uses them. If it uses the covariance too, the sum is still as cheap as its diagonal.

The terms may be added in another order, which moves the result by round-off.
"""

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import ExtractDiag
from pytensor.tensor.math import Dot, sqr
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.rewrites.linalg.cholesky_of_gram import root_of_gram


@node_rewriter([ExtractDiag])
def local_diag_of_product(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``diagonal(A @ B) -> (A * B.T).sum(axis=1)``."""
    [product], [out] = node.inputs, node.outputs
    if (node.op.offset, node.op.axis1, node.op.axis2) != (0, 0, 1):
        return None
    if not isinstance(product.owner_op, Dot) or out.type.dtype not in float_dtypes:
        return None
    left, right = product.owner.inputs
    n, m = left.type.shape[0], right.type.shape[1]
    # Of a product that is not square, only the first rows or columns are needed.
    if left.type.ndim != 2 or right.type.ndim != 2 or n is None or n != m:
        return None
    root = root_of_gram(product)
    terms = left * right.T if root is None else sqr(root)
    diag = terms.sum(axis=1)
    copy_stack_trace(out, [terms, diag])
    return [diag] if out.type.is_super(diag.type) else None
