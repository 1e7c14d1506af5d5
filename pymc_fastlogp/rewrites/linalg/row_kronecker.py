r"""Multiply by the factors of a constant matrix whose rows are Kronecker products.

.. code::

    X @ w  ->  ((A @ W) * B).sum(1)              X[i] = kron(A[i], B[i]) constant, W = w as a matrix
    X @ w  ->  ((A @ W)[g] * s * B).sum(1)       X[i] = s[i] * kron(A[g[i]], B[i])
    X @ w  ->  s * (A @ W @ B.T)[g, h]           X[i] = s[i] * kron(A[g[i]], B[h[i]])

Bases in two dimensions are products of bases in one dimension: Hilbert space approximations of Gaussian processes
(``pm.gp.HSGP``), tensor product smooths, interactions of splines. A row :math:`x_i = a_i \otimes b_i` has :math:`p q`
entries and is made of :math:`p + q` numbers,

.. math:: x_i^\top w = \sum_{j,k} a_{ij} b_{ik} w_{jk} = (A W)_i^\top b_i.

The number of multiplications stays the same. But ``X @ w`` reads each entry of a large matrix once per multiplication,
and its gradient reads the matrix a second time. ``A @ W`` is a product of small matrices, in which each number is multiplied several
times while it is in a register. The gradient by :math:`W` is :math:`A^\top (r \circ B)` with the derivative :math:`r_i` of row :math:`i`.
Kernels run both products and the rows between them in blocks (:mod:`pymc_fastlogp.kernel.passes.row_blocks`).

Coordinates on a grid, such as years and days, have few distinct values. If the factors have :math:`n_a` and :math:`n_b` distinct rows
for :math:`n` rows, ``A @ W`` takes :math:`n_a p q` multiplications instead of :math:`n p q`, and the products with :math:`B` take
:math:`\min(n, n_a n_b)\, q`. The factors are exchanged if this is fewer.

The factors are read off the matrix. With the largest entry of a row at :math:`(j_0, k_0)`,

.. math:: s_i = x_{i j_0 k_0}, \qquad a_{ij} = x_{i j k_0} / s_i, \qquad b_{ik} = x_{i j_0 k} / s_i.

Each entry of the matrix must equal the product of its factors up to 8 units of round-off, and equal rows of a factor must differ by no
more. So results differ by the round-off of :math:`\sum_j |x_{ij}| |w_j|`.

When it applies
---------------
- A constant float64 matrix times a vector, with factors of at least 8 columns each.
- At least 400 000 entries, or 10 000 entries if repeated rows of the factors save two thirds of the multiplications.
- Behind the rule for Gaussian likelihoods, whose triangles do not have the rows of the matrix.

When it refuses
---------------
- Smaller matrices, which stay in the cache, and more than 16 384 columns.
- Rows that are no Kronecker products, for example if columns are left out or standardized, and entries that are not
  finite. A sample of 8 rows decides first.
- A matrix of coefficients.
"""

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
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
# Most columns of the matrix: kernels multiply by coefficients that stay in the L2 cache.
MOST_COLUMNS = 2**14
# Least number of entries, and largest share of the multiplications, if rows of the factors repeat.
FEWEST_WITH_REPEATS, MOST_PRODUCTS = 10_000, 1 / 3
# Rows of the sample, and entries per chunk.
SAMPLE, CHUNK = 8, 1_000_000
# Largest relative error of a product of factors, and of a row of a factor.
RTOL = 8 * np.finfo("float64").eps
# Entries of a row within this share of the largest are as large. Equal rows of a factor must have their largest entry in the same column.
AS_LARGE = 1 - 1e-9
# Largest difference of the projections of equal rows.
NEAR = 1e-11


class Table(NamedTuple):
    """Distinct rows of a matrix, and the number of the distinct row of each row."""

    rows: np.ndarray
    of_row: np.ndarray

    def repeated(self) -> np.ndarray:
        """Return all rows."""
        return self.rows[self.of_row]


class RowFactors(NamedTuple):
    """Row ``i`` of a matrix as ``scale[i] * kron(a.rows[a.of_row[i]], b.rows[b.of_row[i]])``."""

    scale: np.ndarray
    a: Table
    b: Table

    @property
    def n_pairs(self) -> int:
        """Number of pairs of distinct rows of the factors."""
        return len(self.a.rows) * len(self.b.rows)

    @property
    def n_products(self) -> int:
        """Number of multiplications if the first factor is multiplied by the coefficients."""
        p, q = self.a.rows.shape[1], self.b.rows.shape[1]
        return len(self.a.rows) * p * q + min(self.n_pairs, len(self.scale)) * q

    def exchanged(self) -> "RowFactors":
        """Return the factors in the other order."""
        return RowFactors(self.scale, self.b, self.a)

    def times(self, w: TensorVariable) -> TensorVariable:
        """Return the product with coefficients, a matrix with a row for each column of the first factor."""
        if self.exchanged().n_products < self.n_products:
            return self.exchanged().times(w.T)
        products = dot(constant(self.a.rows), w)
        if self.n_pairs <= len(self.scale):
            table = dot(products, constant(self.b.rows.T))
            of_row = self.a.of_row * len(self.b.rows) + self.b.of_row
            return constant(self.scale) * table.flatten()[of_row]
        if len(self.a.rows) < len(self.scale):
            products = products[self.a.of_row]
        return pt_sum(products * constant(self.scale[:, None] * self.b.repeated()), axis=1)


_known: WeakKeyDictionary[TensorConstant, RowFactors | None] = WeakKeyDictionary()


@node_rewriter([Dot])
def local_row_kronecker(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``X @ w -> ((A @ W) * B).sum(1)`` for rows ``X[i] = kron(A[i], B[i])``."""
    [x, column], [out] = node.inputs, node.outputs
    is_large = isinstance(x, TensorConstant) and x.data.size >= FEWEST_WITH_REPEATS
    if not is_large or {x.type.dtype, out.type.dtype} != {"float64"}:
        return None
    vector = as_vector(column)
    if vector is None or vector.type.shape != x.type.shape[1:]:
        return None
    if x not in _known:
        _known[x] = _factors_that_pay(x.data)
    factors = _known[x]
    if factors is None:
        return None
    w = in_type(vector, "float64")
    shape = factors.a.rows.shape[1], factors.b.rows.shape[1]
    return replacement(out, factors.times(w.reshape(shape))[:, None])


def _factors_that_pay(x: np.ndarray) -> RowFactors | None:
    factors = row_factors(x)
    if factors is None or x.size >= FEWEST_ENTRIES:
        return factors
    n_products = min(factors.n_products, factors.exchanged().n_products)
    return factors if n_products <= MOST_PRODUCTS * x.size else None


def row_factors(x: np.ndarray) -> RowFactors | None:
    """Return factors of which each row of a matrix is the Kronecker product, as equal in width as possible."""
    if x.shape[1] > MOST_COLUMNS:
        return None
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
            scale, a, b = map(np.concatenate, zip(*found))
            return RowFactors(scale, _table(a), _table(b))
    return None


def _factored(x: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return scales and factors of some rows, the first factor with ``width`` columns; None if there are none."""
    sizes = np.abs(x)
    pivot = (sizes >= AS_LARGE * sizes.max(axis=1, keepdims=True)).argmax(axis=1)
    x = x.reshape(len(x), width, -1)
    j, k = np.divmod(pivot, x.shape[2])
    row = np.arange(len(x))
    scale = x[row, j, k]
    if not np.isfinite(scale).all():
        return None
    divisor = np.where(scale == 0, 1, scale)[:, None]
    a, b = x[row, :, k] / divisor, x[row, j, :] / divisor
    of_a = scale[:, None] * a
    is_product = all(_is_near(of_a[:, column, None] * b, x[:, column]) for column in range(width))
    return (scale, a, b) if is_product else None


def _is_near(found: np.ndarray, x: np.ndarray) -> bool:
    return bool((np.abs(found - x) <= RTOL * np.abs(x)).all())


def _table(rows: np.ndarray) -> Table:
    """Return the distinct rows, up to round-off; all rows if hardly any repeat.

    Rows are compared by their projections on one direction, which takes linear time apart from the sort of one number per row.
    """
    projected = rows @ np.random.default_rng(0).uniform(0.5, 1, rows.shape[1])
    order = np.argsort(projected, kind="stable")
    codes = np.empty(len(rows), dtype=int)
    codes[order] = np.cumsum(np.diff(projected[order], prepend=-np.inf) > NEAR)
    # Numbered by first occurrence, so that a grid in order is read in order.
    of_row, _ = pd.factorize(codes)
    table = Table(rows[np.unique(of_row, return_index=True)[1]], of_row)
    is_whole = len(table.rows) > len(rows) / 2 or not _is_near(table.repeated(), rows)
    return Table(rows, np.arange(len(rows))) if is_whole else table
