r"""Compute the diagonal of a matrix product without the other entries.

.. code::

    diagonal(A @ B)    ->  (A * B.T).sum(axis=1)
    diagonal(A @ B)    ->  (A[:n] * B.T[:n]).sum(axis=1)      for unknown lengths, n = minimum(len(A), len(B.T))
    diagonal(A @ A.T)  ->  sqr(A).sum(axis=1)                 for unknown lengths

.. math:: (A B)_{ii} = \sum_k A_{ik} B_{ki}

takes :math:`n m` multiplications instead of :math:`n^2 m`, and no matrix of :math:`n^2` entries. Quadratic forms by row,
``pt.diag(X @ S @ X.T)``, have this form: variances of linear predictors, Mahalanobis distances, and the variances of a sparse
Gaussian process.

PyTensor has the rewrite after the gradient, for products of known shape. For data of unknown length, it would leave the whole
product in the log density and in the gradient.

Terms may be added in another order, so results differ by round-off. PyTensor's gradient multiplies the entries off the diagonal
by zero, which is NaN where a factor is infinite. After the rewrite this gradient is finite.

When it applies
---------------
To the main diagonal of a product of two float matrices.

When it refuses
---------------
- Other diagonals, products of known shape that are not square, batches of matrices.
- ``A @ A.T`` of known shape. PyTensor's rewrite after the gradient has fewer divisions: with squares, PyTensor moves the
  derivative of each row into the product of each entry.
"""

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import ExtractDiag
from pytensor.tensor.math import Dot, minimum, sqr
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.rewrites.linalg.cholesky_of_gram import root_of_gram
from pymc_fastlogp.rewrites.replacement import replacement


@node_rewriter([ExtractDiag])
def local_diag_of_product(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``diagonal(A @ B) -> (A * B.T).sum(axis=1)``."""
    [product], [out] = node.inputs, node.outputs
    if (node.op.offset, node.op.axis1, node.op.axis2) != (0, 0, 1):
        return None
    if not isinstance(product.owner_op, Dot) or out.type.dtype not in float_dtypes:
        return None
    left, right = product.owner.inputs
    root, (rows, columns) = root_of_gram(product), product.type.shape
    if None in (rows, columns):
        if root is not None:
            return replacement(out, sqr(root).sum(axis=1))
        n = minimum(left.shape[0], right.shape[1])
        left, right = left[:n], right[:, :n]
    elif rows != columns or root is not None:
        return None
    return replacement(out, (left * right.T).sum(axis=1))
