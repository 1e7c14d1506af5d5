r"""Multiply by the factors of a constant matrix whose rows are Kronecker products.

.. code::

    X @ w  ->  ((A @ W) * B).sum(1)        X[i] = kron(A[i], B[i]) constant, W = w as a matrix

Bases in two dimensions are products of bases in one dimension: Hilbert space approximations of Gaussian processes
(``pm.gp.HSGP``), tensor product smooths, interactions of splines. A row :math:`x_i = a_i \otimes b_i` has :math:`p q`
entries and is made of :math:`p + q` numbers,

.. math:: x_i^\top w = \sum_{j,k} a_{ij} b_{ik} w_{jk} = (A W)_i^\top b_i.

The number of multiplications stays the same. But ``X @ w`` reads each entry of a large matrix once per multiplication,
and its gradient reads the matrix a second time. ``A @ W`` is a product of small matrices, which BLAS computes in the
cache.

The factors are read off the matrix. With the largest entry of a row at :math:`(j_0, k_0)`,

.. math:: a_{ij} = x_{i j k_0}, \qquad b_{ik} = x_{i j_0 k} / x_{i j_0 k_0}.

Each entry of the matrix must equal the product of its factors up to 8 units of round-off. So results differ by the round-off of
:math:`\sum_j |x_{ij}| |w_j|`.

When it applies
---------------
- A constant float64 matrix with at least 400 000 entries times a vector, with factors of at least 8 columns each.
- Behind the rule for Gaussian likelihoods, whose triangles do not have the rows of the matrix.

When it refuses
---------------
- Smaller matrices, which stay in the cache.
- Rows that are no Kronecker products, for example if columns are left out or standardized, and entries that are not
  finite. A sample of 8 rows decides first.
- A matrix of coefficients.
"""

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import constant
from pytensor.tensor.math import Dot, dot
from pytensor.tensor.math import sum as pt_sum
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.elemwise import in_type
from pymc_fastlogp.rewrites.linalg.design_matrix import as_vector
from pymc_fastlogp.rewrites.replacement import replacement

# Least number of entries of a matrix, and of columns of each factor, for the factors to be faster.
FEWEST_ENTRIES, FEWEST_COLUMNS = 400_000, 8
# Rows of the sample, and entries per chunk.
SAMPLE, CHUNK = 8, 1_000_000
# Largest relative error of a product of factors.
RTOL = 8 * np.finfo("float64").eps


class RowFactors(NamedTuple):
    """Matrices ``a`` and ``b`` of which each row of a matrix is the Kronecker product."""

    a: np.ndarray
    b: np.ndarray


_known: WeakKeyDictionary[TensorConstant, RowFactors | None] = WeakKeyDictionary()


@node_rewriter([Dot])
def local_row_kronecker(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``X @ w -> ((A @ W) * B).sum(1)`` for rows ``X[i] = kron(A[i], B[i])``."""
    [x, column], [out] = node.inputs, node.outputs
    is_large = isinstance(x, TensorConstant) and x.data.size >= FEWEST_ENTRIES
    if not is_large or {x.type.dtype, out.type.dtype} != {"float64"}:
        return None
    vector = as_vector(column)
    if vector is None or vector.type.shape != x.type.shape[1:]:
        return None
    if x not in _known:
        _known[x] = row_factors(x.data)
    factors = _known[x]
    if factors is None:
        return None
    a, b = map(constant, factors)
    w = in_type(vector, "float64")
    products = dot(a, w.reshape((factors.a.shape[1], factors.b.shape[1])))
    return replacement(out, pt_sum(products * b, axis=1, keepdims=True))


def row_factors(x: np.ndarray) -> RowFactors | None:
    """Return matrices of which each row of a matrix is the Kronecker product, as equal in width as possible."""
    widths = [
        p
        for p in range(FEWEST_COLUMNS, x.shape[1] // FEWEST_COLUMNS + 1)
        if x.shape[1] % p == 0 and _factored(x[:SAMPLE], p) is not None
    ]
    for p in sorted(widths, key=lambda p: p + x.shape[1] // p):
        step = max(1, CHUNK // x.shape[1])
        parts = [_factored(x[begin : begin + step], p) for begin in range(0, len(x), step)]
        found = [part for part in parts if part is not None]
        if len(found) == len(parts):
            return RowFactors(*map(np.concatenate, zip(*found)))
    return None


def _factored(x: np.ndarray, width: int) -> RowFactors | None:
    """Return factors of some rows, the first one with ``width`` columns; None if there are none."""
    x = x.reshape(len(x), width, -1)
    pivot = np.abs(x).reshape(len(x), -1).argmax(axis=1)
    j, k = np.divmod(pivot, x.shape[2])
    row = np.arange(len(x))
    largest = x[row, j, k][:, None]
    a = x[row, :, k]
    with np.errstate(all="ignore"):
        b = x[row, j, :] / np.where(largest == 0, 1, largest)
        error = np.abs(a[:, :, None] * b[:, None, :] - x)
        is_product = (error <= RTOL * np.abs(x)).all()
    return RowFactors(a, b) if is_product and np.isfinite(largest).all() else None
