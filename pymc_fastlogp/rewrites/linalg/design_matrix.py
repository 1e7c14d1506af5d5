r"""Gather the coefficients of dummy variables and other sparse columns, instead of multiplying by zeros.

.. code::

    X @ b                ->  b[column] + X_dense @ b_dense                X constant
    X @ b                ->  b[c1] + b[c2] + v * b[c3] + m * b_0 + ..
    X @ b                ->  (D @ b_t)[row] + X_dense @ b_dense
    X @ B                ->  B[column] + X_dense @ B_dense
    (X * b).sum(1)       ->  as X @ b
    (X * b[g]).sum(1)    ->  b[g, column] + (X_dense * b_dense[g]).sum(1)
    (X * b[g]).sum(1)    ->  (b_t @ D.T)[g, row] + (X_dense * b_dense[g]).sum(1)

Design matrices of formulas hold factors, interactions and nested effects as columns of zeros and ones. Rows of spline
bases have a few nonzero entries. Each *block* of columns of which at most one differs from a baseline in each row is a
gather,

.. math:: \sum_{j \in B} x_{ij} b_j = \sum_{j \in B} m_j b_j + v_i \, b_{c_i},

with the baseline :math:`m_j` of a column, the column :math:`c_i` that differs in row :math:`i`, and the difference
:math:`v_i`. :mod:`~pymc_fastlogp.analysis.column_blocks` finds the blocks. If all :math:`v_i` are one, the gather needs
no product. Differences that are equal within a column scale its coefficient once. A row without a difference reads a
zero behind the coefficients. Constant columns have only a baseline. Centered and standardized dummies have two values,
so they are blocks too. Columns with proportional differences share a coefficient.

Columns with few distinct rows are a gather of a small product: sum, Helmert and polynomial contrasts of a factor, their interactions, and bases
of covariates with few values (:mod:`~pymc_fastlogp.analysis.row_tables`). With the distinct rows :math:`D` and their number
:math:`t_i` in row :math:`i`, :math:`\sum_{j \in T} x_{ij} b_j = (D b)_{t_i}`. Rows of :math:`D` with one entry read a coefficient. So all
levels but one of a sum contrast need no product. Coefficients of groups multiply :math:`D` once per group.

The rule runs before the gradient and before the other rules about rows. Those rules see a model that is written with an
index: :mod:`row compaction <pymc_fastlogp.rewrites.rows.compact.compact_rows>`,
:mod:`triangles <pymc_fastlogp.rewrites.gaussian.gaussian_rows>` per group, rows sorted by an index. The gradient is a
scatter into the coefficients.

The order of additions changes, and a difference from a nonzero baseline is rounded. So results differ by the round-off of
:math:`\sum_j (|x_{ij}| + |m_j|) |b_j|`.

**Coefficients that are not finite.** Zero times infinity is NaN, so one infinite or NaN coefficient makes every row of
``X @ b`` NaN. After the rewrite, rows that do not read the coefficient are finite, as in a model that is written with
an index. A row with a nonzero entry for the coefficient stays infinite or NaN. PyTensor's ``local_0_dot_x`` drops a
matrix of zeros likewise. A coefficient with a proper prior has the density zero at infinity, so the log density is -inf or
NaN in both forms. Only a coefficient whose prior is flat at infinity can give a finite log density, if no row that
reads the coefficient contributes -inf or NaN.

When it applies
---------------
- ``dot``, ``@``, ``matmul``, ``tensordot`` and ``matvec`` of a constant matrix with coefficients, from either side, and
  sums of rows of products. The matrix is numpy data, or frozen ``pm.Data``: booleans, integers or floats in any memory
  order, with at least 1000 entries and no more columns than rows.
- At least 4 columns make a block, and fewer columns stay in the dense matrix. A block counts as 4 dense columns; all
  columns then count at most 3/4 of the columns of the matrix.
- Columns that equal their median in at least half of the rows. A sample of 1025 rows decides, and a matrix without
  blocks in the sample costs no more to compile than the sample.

When it refuses
---------------
- Shared data, and matrices that are computed.
- A sum of squares, whose triangle of the whole matrix has fewer multiplications than triangles by cells, or than the rows:
  crossed factors of few levels, for example. If the triangle is refused, the rule applies afterwards.
- Coefficients of groups, if all columns have few distinct rows: ``hoist_reductions`` applies.
- Entries that are infinite or NaN, complex entries, and matrices of integers times integers.
"""

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.traversal import ancestors, walk
from pytensor.tensor.basic import constant, join
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot, Sum, dot
from pytensor.tensor.math import sum as pt_sum
from pytensor.tensor.subtensor import AdvancedSubtensor, inc_subtensor
from pytensor.tensor.type import float_dtypes, integer_dtypes
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.algebra import add_all
from pymc_fastlogp.analysis.column_blocks import Block, ColumnBlocks, column_blocks
from pymc_fastlogp.analysis.elemwise import in_type, is_elemwise, squared
from pymc_fastlogp.analysis.row_tables import RowTable
from pymc_fastlogp.rewrites.gaussian.squares import MOST_COLUMNS
from pymc_fastlogp.rewrites.gaussian.sums import MOST_UNROLLED
from pymc_fastlogp.rewrites.replacement import replacement
from pymc_fastlogp.rewrites.rows.view.columns import reads_of
from pymc_fastlogp.rewrites.rows.view.keys import MAX_DISTINCT_SHARE, RowKeys

# A gather and its scatter in the gradient cost about as much as this many columns of a dense matrix.
FEWEST_COLUMNS = 4
# Least number of entries of a matrix. Kernels multiply smaller matrices in registers.
FEWEST_ENTRIES = 1000

AFFINE = ps.Add, ps.Sub, ps.Neg, ps.Mul, ps.TrueDiv

# By whether the constant is transposed, and by the number of groups.
type Known = dict[tuple[bool, int], ColumnBlocks | None]
_known: WeakKeyDictionary[TensorConstant, Known] = WeakKeyDictionary()


class Coefficients(NamedTuple):
    """Coefficients of the columns of a design matrix.

    Attributes
    ----------
    table : TensorVariable
        Coefficients of all rows: a vector, or a matrix with one row per column of the design matrix. With ``group``, a
        matrix with one row per group and one column per column of the design matrix.
    group : TensorConstant, optional
        The group of each row.
    """

    table: TensorVariable
    group: TensorConstant | None = None

    @property
    def axis(self) -> int:
        """Return the axis of the columns of the design matrix."""
        return 0 if self.group is None else 1

    def at(self, column_of_row: np.ndarray) -> TensorVariable:
        """Return the coefficient that each row reads."""
        index = constant(column_of_row)
        return self.table[index] if self.group is None else self.table[self.group, index]

    def of(self, columns: np.ndarray) -> TensorVariable:
        """Return the coefficients of some columns; a slice of columns that are adjacent."""
        first, last = int(columns[0]), int(columns[-1])
        is_range = np.array_equal(columns, np.arange(first, last + 1))
        index = slice(first, last + 1) if is_range else constant(columns)
        return self.table[(slice(None),) * self.axis + (index,)]

    def aligned(self, values: np.ndarray) -> TensorVariable:
        """Return a constant with one entry per row, or per column, of the design matrix."""
        is_matrix = self.group is None and self.table.type.ndim == 2
        return constant((values[:, None] if is_matrix else values).astype(self.table.type.dtype))

    def scaled(self, scales: np.ndarray) -> "Coefficients":
        """Return the coefficients times a number per column."""
        return self._replace(table=self.table * self.aligned(scales))

    def padded(self, columns: np.ndarray) -> "Coefficients":
        """Return the coefficients of some columns, with a zero behind them."""
        shape = [1 if axis == self.axis else n for axis, n in enumerate(self.table.type.shape)]
        zeros = constant(np.zeros(shape, self.table.type.dtype))
        return self._replace(table=join(self.axis, self.of(columns), zeros))

    def combined(self, blocks: ColumnBlocks) -> "Coefficients":
        """Add the coefficients of proportional columns to the coefficient of the first."""
        if not blocks.proportional:
            return self
        first = np.array([each.first for each in blocks.proportional for _ in each.columns])
        others = np.array([j for each in blocks.proportional for j in each.columns])
        scales = np.array([s for each in blocks.proportional for s in each.scales])
        at = (slice(None),) * self.axis
        added = self.table[(*at, constant(others))] * self.aligned(scales)
        return self._replace(table=inc_subtensor(self.table[(*at, constant(first))], added))

    def of_rows(self, rows: np.ndarray, columns: np.ndarray) -> TensorVariable:
        """Return the products of some rows with the coefficients of their columns, of each group."""
        coefficients, dense = self.of(columns), constant(rows.astype(self.table.type.dtype))
        return dot(dense, coefficients) if self.group is None else dot(coefficients, dense.T)

    def times(self, matrix: np.ndarray, columns: np.ndarray) -> TensorVariable:
        """Return a matrix with a row per row of the design matrix times the coefficients of its columns."""
        if self.group is None:
            return self.of_rows(matrix, columns)
        dense = constant(matrix.astype(self.table.type.dtype))
        return pt_sum(dense * self.of(columns)[self.group], axis=1)

    def of_baselines(self, baselines: dict[int, float]) -> TensorVariable:
        """Return the sum of baselines times coefficients, which rows or groups share."""
        columns, values = np.array([*baselines]), np.array([*baselines.values()])
        coefficients = self.of(columns)
        if (values != 1).any():
            coefficients = coefficients * self.aligned(values)
        total = pt_sum(coefficients, axis=self.axis)
        return total if self.group is None else total[self.group]


@node_rewriter([Dot, Sum])
def local_sparse_design(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``X @ b -> b[column] + X_dense @ b_dense``, also inside of a square if its triangle then is smaller."""
    product = _parse(node)
    if product is None:
        return None
    square = _square_of(fgraph, node.outputs[0])
    if square is not None and not _has_smaller_triangle(fgraph, product, square):
        return None
    return replacement(node.outputs[0], product.split())


@node_rewriter([Dot, Sum])
def local_sparse_design_of_squares(
    fgraph: FunctionGraph, node: Apply
) -> list[TensorVariable] | None:
    """Rewrite ``X @ b -> b[column] + X_dense @ b_dense`` for the squares that are no triangle."""
    product = _parse(node)
    return None if product is None else replacement(node.outputs[0], product.split())


class Product(NamedTuple):
    """A design matrix times coefficients.

    Attributes
    ----------
    matrix : numpy.ndarray
        The design matrix.
    blocks : ColumnBlocks
        Its columns.
    coefficients : Coefficients
        The coefficients.
    order : tuple
        Order of the axes of the result, as in :meth:`dimshuffle`.
    """

    matrix: np.ndarray
    blocks: ColumnBlocks
    coefficients: Coefficients
    order: tuple[int | str, ...]

    def split(self) -> TensorVariable:
        """Return the product as a sum of gathers, the product with the dense columns and the baselines."""
        blocks, given = self.blocks, self.coefficients
        combined = given.combined(blocks)
        terms = [_gathered(block, combined) for block in blocks.blocks]
        terms += [_gathered_from_table(table, given) for table in blocks.tables]
        if len(blocks.dense):
            terms.append(given.times(self.matrix[:, blocks.dense], blocks.dense))
        if blocks.baselines:
            terms.append(given.of_baselines(blocks.baselines))
        return add_all(terms).dimshuffle(*self.order)


def _gathered(block: Block, coefficients: Coefficients) -> TensorVariable:
    """Return the sum of the columns of a block times their coefficients."""
    n_columns = coefficients.table.type.shape[coefficients.axis]
    reads = block.of_row >= 0
    column = block.columns[block.of_row]
    if block.scales is None:
        # Rows without a difference read the column of the last one, times zero.
        return coefficients.at(column) * coefficients.aligned(block.values)
    if (block.scales != 1).any():
        scales = np.ones(n_columns)
        scales[block.columns] = block.scales
        coefficients = coefficients.scaled(scales)
    if reads.all():
        return coefficients.at(column)
    first, last = block.columns.min(), block.columns.max()
    padded = coefficients.padded(np.arange(first, last + 1))
    return padded.at(np.where(reads, column, last + 1) - first)


def _gathered_from_table(table: RowTable, coefficients: Coefficients) -> TensorVariable:
    """Return the product of columns with few distinct rows, without their baselines."""
    parts = []
    if len(table.single):
        parts.append(coefficients.of(table.single) * coefficients.aligned(table.scales))
    if len(table.rows):
        parts.append(coefficients.of_rows(table.rows, table.columns))
    products = coefficients._replace(table=join(coefficients.axis, *parts))
    return products.at(table.of_row)


def _parse(node: Apply) -> Product | None:
    """Return a product with a constant matrix that has blocks."""
    [out] = node.outputs
    if out.type.dtype not in float_dtypes:
        return None
    return _parse_sum(node) if isinstance(node.op, Sum) else _parse_dot(node)


def _parse_dot(node: Apply) -> Product | None:
    left, right = node.inputs
    if isinstance(left, TensorConstant):
        vector = as_vector(right)
        if vector is not None:
            return _product(node, left, Coefficients(vector), (0, "x"))
        return _product(node, left, Coefficients(right), (0, 1))
    if isinstance(right, TensorConstant):
        return _product(node, right, Coefficients(left.T), (1, 0), is_transposed=True)
    return None


def _parse_sum(node: Apply) -> Product | None:
    """Parse ``(X * b).sum(1)`` and ``(X * b[g]).sum(1)``."""
    [terms], [out] = node.inputs, node.outputs
    dtypes = {terms.type.dtype, out.type.dtype, node.op.acc_dtype or out.type.dtype}
    if node.op.axis != (1,) or terms.type.ndim != 2 or len(dtypes) > 1:
        return None
    if not is_elemwise(terms.owner_op, ps.Mul) or len(terms.owner.inputs) != 2:
        return None
    for x, b in (terms.owner.inputs, terms.owner.inputs[::-1]):
        coefficients = _coefficients_of_rows(b)
        if isinstance(x, TensorConstant) and coefficients is not None:
            return _product(node, x, coefficients, (0,))
    return None


def _coefficients_of_rows(b: TensorVariable) -> Coefficients | None:
    """Parse ``b[None]`` and ``b[g]``."""
    if isinstance(b.owner_op, DimShuffle) and b.owner.op.new_order == ("x", 0):
        return Coefficients(b.owner.inputs[0])
    if not isinstance(b.owner_op, AdvancedSubtensor) or b.owner.op.idx_list != (0,):
        return None
    table, group = b.owner.inputs
    is_index = isinstance(group, TensorConstant) and group.type.dtype in integer_dtypes
    return Coefficients(table, group) if is_index and group.type.ndim == 1 else None


def as_vector(b: TensorVariable) -> TensorVariable | None:
    """Return a matrix with one column as a vector, None for other matrices."""
    if isinstance(b.owner_op, DimShuffle) and b.owner.op.new_order == (0, "x"):
        vector: TensorVariable = b.owner.inputs[0]
        return vector
    return b.squeeze(1) if b.type.shape[1] == 1 else None


def _product(
    node: Apply,
    x: TensorConstant,
    coefficients: Coefficients,
    order: tuple[int | str, ...],
    *,
    is_transposed: bool = False,
) -> Product | None:
    """Return the product if the matrix has blocks, and all lengths are known and fit."""
    matrix = x.data.T if is_transposed else x.data
    table = in_type(coefficients.table, node.outputs[0].type.dtype)
    coefficients = coefficients._replace(table=table)
    n, p = matrix.shape
    if None in table.type.shape or table.type.shape[coefficients.axis] != p:
        return None
    if coefficients.group is not None and coefficients.group.type.shape != (n,):
        return None
    known = _known.setdefault(x, {})
    n_groups = 1 if coefficients.group is None else max(1, table.type.shape[0])
    key = is_transposed, n_groups
    if key not in known:
        is_large = n >= p >= FEWEST_COLUMNS and matrix.size >= FEWEST_ENTRIES
        is_real = matrix.dtype.kind in "biuf"
        known[key] = (
            column_blocks(matrix, FEWEST_COLUMNS, n_groups) if is_large and is_real else None
        )
    blocks = known[key]
    if blocks is None:
        return None
    # Rows of tables alone repeat, so that `hoist_reductions` multiplies the rows of each group that occur.
    are_tables = not blocks.blocks and not len(blocks.dense)
    if coefficients.group is not None and are_tables:
        return None
    return Product(matrix, blocks, coefficients, order)


def _square_of(fgraph: FunctionGraph, x: TensorVariable) -> TensorVariable | None:
    """Return the square of an affine expression of ``x``, None if there is none."""

    def readers(x: TensorVariable) -> list[TensorVariable]:
        outs = (y for client, _ in fgraph.clients[x] for y in client.outputs)
        return [y for y in outs if _is_affine(y) or squared(y) is not None]

    def further(y: TensorVariable) -> list[TensorVariable]:
        return [] if squared(y) is not None else readers(y)

    return next((y for y in walk(readers(x), further) if squared(y) is not None), None)


def _is_affine(x: TensorVariable) -> bool:
    return isinstance(x.owner_op, DimShuffle) or is_elemwise(x.owner_op, *AFFINE)


def _has_smaller_triangle(fgraph: FunctionGraph, product: Product, square: TensorVariable) -> bool:
    """Return whether a sum of squares has fewer multiplications by cells, or by rows, of the blocks than by a triangle of the whole matrix."""
    if product.coefficients.group is not None:
        return False
    n, p = product.matrix.shape
    blocks, keys = product.blocks, reads_of(fgraph, (n,)).keys
    of_others = [index for index in _indices(square) if index.shape == (n,)]
    whole = _n_products(keys, of_others, len(of_others), p) if p <= MOST_COLUMNS else None
    if whole is None:
        return True
    of_blocks = [block.of_row for block in blocks.blocks]
    of_blocks += [table.of_row for table in blocks.tables]
    # Coefficients without a factor of the row add up to one parameter of a cell.
    n_factors = sum(block.scales is None for block in blocks.blocks)
    n_own = len(of_others) + n_factors + (n_factors < len(of_blocks))
    n_shared = len(blocks.dense) + (len(blocks.baselines) > 0)
    n_gathers = len(of_others) + len(of_blocks)
    of_rows = n * (FEWEST_COLUMNS * n_gathers + n_shared)
    by_cell = _n_products(keys, [*of_others, *of_blocks], n_own, n_shared) or of_rows
    return by_cell + sum(table.rows.size for table in blocks.tables) < whole


def _indices(x: TensorVariable) -> list[np.ndarray]:
    """Return the constant indices in the graph of ``x``."""
    gathers = (a.owner for a in ancestors([x]) if isinstance(a.owner_op, AdvancedSubtensor))
    return [i.data for node in gathers for i in node.inputs[1:] if isinstance(i, TensorConstant)]


def _n_products(keys: RowKeys, indices: list[np.ndarray], n_own: int, n_shared: int) -> int | None:
    """Return the number of multiplications of the triangles of all cells, None if the rule for triangles refuses.

    A gather counts as :data:`FEWEST_COLUMNS` multiplications. Shared parameters are multiplied by a square matrix.
    """
    codes = keys.codes(frozenset[int]().union(*map(keys.add, indices)))
    if codes is None or n_own > MOST_UNROLLED:
        return None
    if n_own * codes.n_cells + n_shared + 1 >= MAX_DISTINCT_SHARE * keys.n_rows:
        return None
    per_cell = FEWEST_COLUMNS * len(indices) + n_own * (n_own + 1) // 2 + n_own * n_shared
    return codes.n_cells * per_cell + n_shared**2
