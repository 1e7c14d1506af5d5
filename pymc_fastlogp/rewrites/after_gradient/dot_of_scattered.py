r"""Multiply a matrix by a scattered, mostly zero matrix row by row, for the scattered entries alone.

.. code::

    zeros(n, m)[i, j].inc(r) @ V    ->  zeros(n, k)[i].inc(r[:, None] * V[j]) + sum(0 * V)      i, j constant
    zeros(n, m)[i, j].inc(r).T @ U  ->  zeros(m, k)[j].inc(r[:, None] * U[i]) + sum(0 * U)

.. math:: (G V)_{a \cdot} = \sum_{p :\, i_p = a} r_p V_{j_p \cdot} \quad \text{where} \quad G = \sum_p r_p \, e_{i_p} e_{j_p}^\top

Both products are the gradient of ``(U @ V.T)[i, j]``, as in ``pm.Normal("rating", (U @ V.T)[seen], sigma, observed=...)``.
PyTensor computes the value for these entries alone, but scatters their gradient into a full matrix. Where less than a third of
the matrix is observed, most multiplications are by zero. The opposite rule, for products of which most entries are needed, is
:mod:`~pymc_fastlogp.rewrites.after_gradient.gather_after_dot`.

The order of additions may change, so results differ by round-off. Zero times infinity is NaN, so ``sum(0 * V)`` is added: an
entry is finite exactly if it was. Increments of one position that overflow and cancel are finite in PyTensor, and NaN here.

When it applies
---------------
After the gradient, in mode NUMBA, to float matrices of known shape with at least 500 multiplications. All readers of the
scattered matrix must be such products. By the length of the rows that are added, the matrix must have at least this many times
the scattered entries (``python -m benchmarks.limits``):

- 10 up to length 6;
- 5 for longer, odd lengths;
- 3 for other lengths up to 16;
- 4 for longer rows.

When it refuses
---------------
Positions that are not constant or negative, sets instead of increments, other readers, a product of two scattered matrices.
"""

from math import prod
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import alloc
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot, mul
from pytensor.tensor.math import sum as pt_sum
from pytensor.tensor.subtensor import AdvancedIncSubtensor
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.rewrites.replacement import replacement

# Minimum number of multiplications, and minimum ratio of matrix entries to scattered entries (``python -m benchmarks.limits``). The
# ratio is larger for long rows, which BLAS multiplies best, for odd lengths, which leave a scalar remainder, and for short rows,
# whose straight-line code loads by gathers.
FEWEST_TERMS, SHORT_ROW, LONG_ROW = 500, 6, 17
LEAST_RATIO, LEAST_RATIO_OF_LONG, LEAST_RATIO_OF_ODD, LEAST_RATIO_OF_SHORT = 3, 4, 5, 10


class ScatteredMatrix(NamedTuple):
    """Values added to zeros at rows and columns: ``matrix``, or the transpose of ``matrix``."""

    matrix: TensorVariable
    shape: tuple[int, int]
    values: TensorVariable
    positions: tuple[Constant, Constant]


class Product(NamedTuple):
    """``scattered @ other``, or the transpose of this product."""

    scattered: ScatteredMatrix
    other: TensorVariable
    is_transposed: bool


@node_rewriter([Dot])
def local_dot_of_scattered(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``zeros[i, j].inc(r) @ V -> zeros[i].inc(r * V[j])`` where this saves time."""
    [out] = node.outputs
    product = _product(node)
    if product is None or not _pays(product) or not _is_read_by_products(fgraph, product):
        return None
    return replacement(out, _by_rows(product))


def _product(node: Apply) -> Product | None:
    """Match a matrix product with one scattered factor."""
    left, right = node.inputs
    if left.type.ndim != 2 or right.type.ndim != 2 or left.type.dtype != right.type.dtype:
        return None
    first, second = _scattered(left), _scattered(right)
    # With two scattered factors, the rule would gather rows of one of them.
    if first is not None:
        return None if second is not None else Product(first, right, is_transposed=False)
    other = _untransposed(left)
    # (V.T @ G.T).T = G @ V. Without the transpose, columns of `left` would be strided in memory.
    if second is None or other is None:
        return None
    return Product(_transpose(second), other, is_transposed=True)


def _scattered(x: TensorVariable) -> ScatteredMatrix | None:
    """Match a matrix, or its transpose, that was scattered into zeros."""
    inner = _untransposed(x)
    if inner is not None:
        scattered = _scattered(inner)
        return None if scattered is None else _transpose(scattered)
    if not isinstance(x.owner_op, AdvancedIncSubtensor) or len(x.owner.inputs) != 4:
        return None
    zeros, values, rows, columns = x.owner.inputs
    op = x.owner.op
    if op.set_instead_of_inc or op.idx_list != (0, 1) or fill_value(zeros) != 0:
        return None
    if values.type.dtype != x.type.dtype or values.type.shape != rows.type.shape:
        return None
    if not _are_positions(rows, columns, x.type.shape):
        return None
    return ScatteredMatrix(x, x.type.shape, values, (rows, columns))


def _are_positions(rows: TensorVariable, columns: TensorVariable, shape: tuple) -> bool:
    """Return whether two constant vectors are nonnegative positions within a matrix of known shape."""
    if None in shape or rows.type.shape != columns.type.shape or rows.type.ndim != 1:
        return False
    return all(
        isinstance(index, Constant)
        and np.issubdtype(index.data.dtype, np.integer)
        and index.data.size
        and 0 <= index.data.min() <= index.data.max() < length
        for index, length in zip((rows, columns), shape, strict=True)
    )


def _transpose(scattered: ScatteredMatrix) -> ScatteredMatrix:
    return scattered._replace(shape=scattered.shape[::-1], positions=scattered.positions[::-1])


def _untransposed(x: TensorVariable) -> TensorVariable | None:
    """Return ``y`` if ``x`` is ``y.T``."""
    is_transpose = isinstance(x.owner_op, DimShuffle) and x.owner.op.is_matrix_transpose
    return x.owner.inputs[0] if is_transpose and x.type.ndim == 2 else None


def _pays(product: Product) -> bool:
    """Return whether all lengths are known, and rows are faster."""
    [entries], shape = product.scattered.values.type.shape, product.scattered.shape
    rows, length = product.other.type.shape
    if rows != shape[1] or length is None or entries * length < FEWEST_TERMS:
        return False
    is_sparse = least_ratio(length) * entries <= prod(shape)
    return product.other.type.dtype in float_dtypes and is_sparse


def least_ratio(length: int) -> float:
    """Return the minimum ratio of matrix entries to scattered entries, for rows of this length."""
    if length <= SHORT_ROW:
        return LEAST_RATIO_OF_SHORT
    if length % 2:
        return LEAST_RATIO_OF_ODD
    return LEAST_RATIO if length < LONG_ROW else LEAST_RATIO_OF_LONG


def _is_read_by_products(fgraph: FunctionGraph, product: Product) -> bool:
    """Return whether all readers of the scattered matrix are products that the rule rewrites too."""
    readers = [node for node, _ in fgraph.clients[product.scattered.matrix]]
    while readers:
        node = readers.pop()
        if isinstance(node.op, DimShuffle) and node.op.is_matrix_transpose:
            readers += [reader for reader, _ in fgraph.clients[node.outputs[0]]]
        elif not isinstance(node.op, Dot):
            return False
        else:
            other = _product(node)
            if other is None or not _pays(other):
                return False
    return True


def _by_rows(product: Product) -> TensorVariable:
    """Return the product as a scatter of rows of the other factor."""
    scattered, other = product.scattered, product.other
    rows, columns = scattered.positions
    not_finite = pt_sum(mul(other, np.asarray(0, other.type.dtype)), axis=0)
    zeros = alloc(np.asarray(0, other.type.dtype), scattered.shape[0], other.type.shape[1])
    # Added last: a scatter into this sum would have to wait for it.
    result = zeros[rows].inc(scattered.values[:, None] * other[columns]) + not_finite
    return result.T if product.is_transposed else result
