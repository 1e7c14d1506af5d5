r"""Write products with a constant sparse matrix as gathers.

.. code::

    dot(A, b)               ->  b[c1] + v * b[c2] + ..                A sparse and constant
    structured_dot(A, B)    ->  as dot(A, B)
    dot(x, A)               ->  as dot(A.T, x.T).T

With the entries :math:`v_e` of the matrix in rows :math:`i_e` and columns :math:`c_e`,

.. math:: (A b)_i = \sum_{e: i_e = i} v_e \, b_{c_e}.

If the columns form few :class:`blocks <pymc_fastlogp.analysis.column_blocks.Block>` with at most one entry per row, as the levels of factors do, each block is one
gather. The other rules then see a model that is written with an index. A row without an entry in a block reads a zero behind the
coefficients.

The rule runs before the gradient, which is a scatter into the coefficients. PyTensor's products are outside of kernels, and have a loop in each
direction.

Only stored entries are multiplied, as in PyTensor's product. So rows that do not read an infinite coefficient stay finite. The order of additions changes.

When it applies
---------------
- ``pytensor.sparse.dot`` and ``structured_dot`` of a constant in CSR or CSC format, or its transpose, with a dense vector or matrix of known shape,
  from either side.

When it refuses
---------------
- Shared sparse matrices, and sparse matrices that are computed.
- Two sparse factors, and products of integers.
- Matrices with more than 8 blocks, or with blocks of more than 1.5 rows per entry, such as the neighbors of areas on a map.
"""

from typing import TYPE_CHECKING

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import constant, join, zeros
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.algebra import add_all
from pymc_fastlogp.analysis.column_blocks import Block, blocks_of_sparse
from pymc_fastlogp.analysis.elemwise import in_type
from pymc_fastlogp.rewrites.replacement import replacement

if TYPE_CHECKING:
    from scipy.sparse import spmatrix

SPARSE = "pytensor.sparse.math"


@node_rewriter(None)
def local_sparse_product(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``dot(A, b) -> b[c1] + v * b[c2] + ..``."""
    # PyTensor's sparse module is imported by the models that use it.
    if type(node.op).__module__ != SPARSE or type(node.op).__name__ not in ("Dot", "StructuredDot"):
        return None
    from pytensor.sparse.type import SparseTensorType

    [out], (left, right) = node.outputs, node.inputs
    are_sparse = [isinstance(x.type, SparseTensorType) for x in node.inputs]
    if all(are_sparse) or out.type.dtype not in float_dtypes:
        return None
    if are_sparse[0]:
        product = _product(_matrix(left), right, out.type.dtype)
        return None if product is None else replacement(out, product)
    product = _product(_matrix(right, is_transposed=True), left.T, out.type.dtype)
    return None if product is None else replacement(out, product.T)


def _matrix(x: Variable, *, is_transposed: bool = False) -> "spmatrix | None":
    """Return a constant sparse matrix, or the transpose of one; None for other variables."""
    from pytensor.sparse.basic import Transpose
    from pytensor.sparse.variable import SparseConstant

    if isinstance(x.owner_op, Transpose):
        [x] = x.owner.inputs
        is_transposed = not is_transposed
    if not isinstance(x, SparseConstant):
        return None
    return x.data.T if is_transposed else x.data


def _product(matrix: "spmatrix | None", table: TensorVariable, dtype: str) -> TensorVariable | None:
    """Return the product if all lengths are known and fit, and the matrix is real and has entries."""
    if matrix is None or None in table.type.shape or table.type.shape[0] != matrix.shape[1]:
        return None
    if not matrix.nnz or matrix.dtype.kind not in "biuf":
        return None
    blocks = blocks_of_sparse(matrix)
    if blocks is None:
        return None
    is_column = table.type.shape[1:] == (1,)
    coefficients = in_type(table.squeeze(1) if is_column else table, dtype)
    product = add_all([_gathered(block, coefficients) for block in blocks])
    return product[:, None] if is_column else product


def _gathered(block: Block, table: TensorVariable) -> TensorVariable:
    """Return the sum of the columns of a block times their coefficients."""
    reads = block.of_row >= 0
    index = block.columns[block.of_row]
    if not reads.all():
        n_columns = table.type.shape[0]
        table = join(0, table, zeros((1, *table.type.shape[1:]), dtype=table.type.dtype))
        index = np.where(reads, index, n_columns)
    return _times(np.where(reads, block.values, 1), table[constant(index)])


def _times(values: np.ndarray, x: TensorVariable) -> TensorVariable:
    """Return rows times values."""
    if (values == 1).all():
        return x
    factors = values.astype(x.type.dtype)
    return constant(factors[:, None] if x.type.ndim == 2 else factors) * x
