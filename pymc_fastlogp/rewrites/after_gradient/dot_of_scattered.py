r"""``zeros[i, j].inc(r) @ V -> zeros[i].inc(r * V[j])``: add rows for the entries that are there, not products with zeros.

.. code::

    zeros(n, m)[i, j].inc(r) @ V    ->  zeros(n, k)[i].inc(r[:, None] * V[j]) + sum(0 * V)      i, j constant
    zeros(n, m)[i, j].inc(r).T @ U  ->  zeros(m, k)[j].inc(r[:, None] * U[i]) + sum(0 * U)

.. math:: (G V)_{a \cdot} = \sum_{p :\, i_p = a} r_p V_{j_p \cdot} \quad \text{where} \quad G = \sum_p r_p \, e_{i_p} e_{j_p}^\top

It is the gradient of ``(U @ V.T)[i, j]``. Of that PyTensor computes the entries alone, by rows of the factors, but its
gradient are products with a matrix that is zero elsewhere. Where less than a third of a matrix is observed, as the
ratings of users and films are, most of what these products multiply is zero.

The rule takes all products with such a matrix, or none: what is read elsewhere has to be there. It runs after the
gradient, as the rule does that goes the other way where most entries are needed
(:mod:`~pymc_fastlogp.rewrites.after_gradient.gather_after_dot`). The terms may be added in another order, which moves the
result by round-off. Zero times infinity is nan, so each row also gets zero times all rows: an entry is finite if, and
only if, it was. One that is not may be nan and have been infinite.
"""

from math import prod
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import alloc
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot, mul
from pytensor.tensor.math import sum as pt_sum
from pytensor.tensor.subtensor import AdvancedIncSubtensor
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value

# Multiplications from which on rows are faster, and how many times as many entries the matrix must have (``python -m benchmarks.ratings``):
# more for long rows, which BLAS multiplies best, where rows do not end with a pair of lanes, and where short ones become straight-line
# code, whose loads are gathers.
FEWEST_TERMS, SHORT_ROW, LONG_ROW = 500, 6, 17
LEAST_RATIO, LEAST_RATIO_OF_LONG, LEAST_RATIO_OF_ODD, LEAST_RATIO_OF_SHORT = 3, 4, 5, 10


class Scattered(NamedTuple):
    """A matrix of a shape that is zero but where values were added at rows and columns: ``matrix``, or its transpose."""

    matrix: TensorVariable
    shape: tuple[int, int]
    values: TensorVariable
    positions: tuple[Constant, Constant]


class Product(NamedTuple):
    """``scattered @ other``, transposed or not."""

    scattered: Scattered
    other: TensorVariable
    is_transposed: bool


@node_rewriter([Dot])
def local_dot_of_scattered(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``zeros[i, j].inc(r) @ V -> zeros[i].inc(r * V[j])`` where it pays."""
    [out] = node.outputs
    product = _product(node)
    if product is None or not _pays(product) or not _is_read_by_products(fgraph, product):
        return None
    made = _of_rows(product)
    copy_stack_trace(out, made)
    return [made] if out.type.is_super(made.type) else None


def _product(node: Apply) -> Product | None:
    """Return what a product of matrices is, None where no factor is scattered."""
    left, right = node.inputs
    if left.type.ndim != 2 or right.type.ndim != 2 or left.type.dtype != right.type.dtype:
        return None
    first, second = _scattered(left), _scattered(right)
    # A product of two such matrices would read the other one by rows.
    if first is not None:
        return None if second is not None else Product(first, right, is_transposed=False)
    other = _untransposed(left)
    # (V.T @ G.T).T = G @ V; the columns of another matrix are apart in memory.
    if second is None or other is None:
        return None
    return Product(_turned(second), other, is_transposed=True)


def _scattered(x: TensorVariable) -> Scattered | None:
    """Return what was scattered into zeros to make a matrix or its transpose."""
    inner = _untransposed(x)
    if inner is not None:
        scattered = _scattered(inner)
        return None if scattered is None else _turned(scattered)
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
    return Scattered(x, x.type.shape, values, (rows, columns))


def _are_positions(rows: TensorVariable, columns: TensorVariable, shape: tuple) -> bool:
    """Return whether two vectors of constants are positions in a matrix of known shape, which do not count from its end."""
    if None in shape or rows.type.shape != columns.type.shape or rows.type.ndim != 1:
        return False
    return all(
        isinstance(index, Constant)
        and np.issubdtype(index.data.dtype, np.integer)
        and index.data.size
        and 0 <= index.data.min() <= index.data.max() < length
        for index, length in zip((rows, columns), shape, strict=True)
    )


def _turned(scattered: Scattered) -> Scattered:
    """Return the transpose."""
    return scattered._replace(shape=scattered.shape[::-1], positions=scattered.positions[::-1])


def _untransposed(x: TensorVariable) -> TensorVariable | None:
    """Return what a matrix is the transpose of, None if it is none."""
    is_transpose = isinstance(x.owner_op, DimShuffle) and x.owner.op.is_matrix_transpose
    return x.owner.inputs[0] if is_transpose and x.type.ndim == 2 else None


def _pays(product: Product) -> bool:
    """Return whether all lengths are known, and such that rows are faster."""
    [entries], shape = product.scattered.values.type.shape, product.scattered.shape
    rows, length = product.other.type.shape
    if rows != shape[1] or length is None or entries * length < FEWEST_TERMS:
        return False
    is_sparse = least_ratio(length) * entries <= prod(shape)
    return product.other.type.dtype in float_dtypes and is_sparse


def least_ratio(length: int) -> float:
    """Return how many times as many entries a matrix must have as are scattered, by the length of the rows that are added."""
    if length <= SHORT_ROW:
        return LEAST_RATIO_OF_SHORT
    if length % 2:
        return LEAST_RATIO_OF_ODD
    return LEAST_RATIO if length < LONG_ROW else LEAST_RATIO_OF_LONG


def _is_read_by_products(fgraph: FunctionGraph, product: Product) -> bool:
    """Return whether all that reads the scattered matrix are products that the rule takes, too."""
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


def _of_rows(product: Product) -> TensorVariable:
    """Return the product by rows of the other factor."""
    scattered, other = product.scattered, product.other
    rows, columns = scattered.positions
    not_finite = pt_sum(mul(other, np.asarray(0, other.type.dtype)), axis=0)
    zeros = alloc(np.asarray(0, other.type.dtype), scattered.shape[0], other.type.shape[1])
    # Added last: what is added up in a loop before would have to wait for it.
    made = zeros[rows].inc(scattered.values[:, None] * other[columns]) + not_finite
    return made.T if product.is_transposed else made
