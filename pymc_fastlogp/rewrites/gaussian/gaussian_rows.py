r"""Sum squares of linear predictors over the rows of a triangle per group, not over the rows of the data.

.. code::

    sum(((y - a[g] - b[g] * x) / s) ** 2)
    ->  (sum((r0 * ((a - a0) + t * (b - b0)) + d0) ** 2 + (r1 * (b - b0) + d1) ** 2) + rest) / s**2

With a continuous outcome no two rows are equal, so
:mod:`row compaction <pymc_fastlogp.rewrites.rows.compact.compact_rows>` cannot merge rows. But a sum of squares of a
linear predictor is a quadratic in its parameters.

Rows that share the same parameters, including the scale, make a *cell*; in the example a cell is a group. The residuals
of a cell are :math:`t_i + c_i^\top h` with known targets :math:`t_i` and covariates :math:`c_i`, and a few parameters
:math:`h`. By a QR factorization

.. math::

    \sum_i w_i^2 (t_i + c_i^\top h)^2 = \| R (h - m) + d \|^2 + \rho^2

for any center :math:`m`: one square per parameter, plus a constant, whatever the number of rows. The steps:

- :mod:`~pymc_fastlogp.rewrites.gaussian.squares`: a term as the square of an affine expression;
- :mod:`~pymc_fastlogp.rewrites.gaussian.design`: the expression as target and covariates;
- :mod:`~pymc_fastlogp.rewrites.gaussian.factor`: the factorization and its rounding;
- :mod:`~pymc_fastlogp.rewrites.gaussian.sums`: the resulting expressions. Squares that read only parameters shared by
  all cells become one cell in turn.

A square costs about as much as a row of the data. With :math:`k` parameters per cell and :math:`p` shared parameters
the rule requires

.. math:: k n_\text{cells} + p + 1 < 0.7 \, n_\text{rows},

or :math:`(k + p + 1) n_\text{cells}` on the left if each cell has its own scale.

If the predictor of a row is not finite, the log density is -inf or NaN, as without the rule. If several parameters of a
cell are infinite, the rule may turn one into the other. A sum of squares that overflows is infinite even if the scale
would bring it back.

When it applies
---------------
- A ``Sum`` over all rows, directly or below parameter checks of PyMC. One of its terms is the square of an expression
  affine in parameters, with constant coefficients: numpy data, or frozen ``pm.Data``. Normal, log-normal and
  half-normal densities have this form.
- In :func:`~pymc_fastlogp.sample_many` outcomes and covariates may be shared: the triangles are computed once for each data set,
  see :mod:`~pymc_fastlogp.rewrites.gaussian.square_factors`.
- Parameters are scalars, gathers by constant indices, ``(beta[group] * X).sum(-1)``, ``X @ beta``, and products of
  these with expressions that a cell shares.
- The scale is shared, known per row, or per group. Rows may have known weights of one sign, or a known mask.
- At most 8 squares per cell remain, fewer than the rows that row compaction would leave.

Other terms, such as ``-log(sigma[group])``, stay a sum over rows for row compaction.

When it refuses
---------------
Each refusal is logged with its reason by the logger ``pymc_fastlogp``:

- Other shared data, random numbers, minibatches, or a parameter with one value per row.
- A predictor that is not linear in a covariate, such as ``exp(b * x)``, or a scale that differs per row and is unknown.
- Too few rows per cell, too many parameters per cell, or more than 600 products in the expanded predictor.
- Weights of both signs, or of zero: ``0 * inf`` is NaN without the rule.
- Data that are not finite, or whose squares overflow or underflow.
- Squares with another reader, such as an elementwise log-likelihood that is an output.
"""

from math import prod
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.math import Sum
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp import decisions
from pymc_fastlogp.analysis.gathers import Where
from pymc_fastlogp.decisions import Refusal
from pymc_fastlogp.rewrites.gaussian.cells import GaussianCells
from pymc_fastlogp.rewrites.gaussian.design import build_design, row_weights
from pymc_fastlogp.rewrites.gaussian.square_factors import factors_of_design
from pymc_fastlogp.rewrites.gaussian.squares import (
    MOST_MONOMIALS,
    Expansion,
    Factor,
    Monomial,
    Square,
    parse_square,
)
from pymc_fastlogp.rewrites.gaussian.sums import (
    MOST_UNROLLED,
    count_squares,
    is_scaled_by_cell,
    sum_of_squares,
)
from pymc_fastlogp.rewrites.rows.compact.grouping import OVERHEAD, Grouping
from pymc_fastlogp.rewrites.rows.compact.reductions import (
    PRECISIONS,
    Reduction,
    is_needed_by_row,
    parse_reduction,
    reduce_all,
    restore_checks,
)
from pymc_fastlogp.rewrites.rows.compact.terms import (
    Term,
    Tree,
    at_rows,
    split,
    sum_at_cells,
    terms_of,
)
from pymc_fastlogp.rewrites.rows.refusals import (
    BAD_CONSTANTS,
    COMPACTED,
    COUNTS,
    NEEDED_ROW_BY_ROW,
    NOT_LINEAR,
    TOO_MANY_CELLS,
    TOO_MANY_PARAMETERS,
    TOO_MANY_PRODUCTS,
    WEIGHTS_OF_DATA,
    ZERO_WEIGHTS,
    why_row_specific,
    why_unknown,
)
from pymc_fastlogp.rewrites.rows.view.axes import arrange_axes
from pymc_fastlogp.rewrites.rows.view.columns import RowReads, reads_of
from pymc_fastlogp.rewrites.rows.view.grid import rest_of, view_key
from pymc_fastlogp.rewrites.rows.view.keys import MAX_DISTINCT_SHARE
from pymc_fastlogp.rewrites.rows.view.length_checks import length_checks

NAME = "fastlogp_gaussian_rows"


class Squares(NamedTuple):
    """The squares in a summand.

    Attributes
    ----------
    reads : RowReads
        Columns that the rows read.
    where : mapping
        Axes of the rows.
    tree : Term or Branch
        All terms.
    of_term : dict
        The terms that are squares.
    expansion : Expansion
        Cached expansions.
    """

    reads: RowReads
    where: Where
    tree: Tree
    of_term: dict[Term, Square]
    expansion: Expansion


class ReducedSquare(NamedTuple):
    """The sum of a square over its rows, shape ``(1,)``, with the number of rows before, rows after, and cells."""

    total: TensorVariable
    rows_before: int
    rows_after: int
    n_cells: int


@node_rewriter([Sum])
def local_gaussian_rows(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``sum(sqr(y - X[rows] @ b[g])) -> sum(sqr(R[cells] @ (b[g] - b0) + d))``."""
    reduction = parse_reduction(node)
    if reduction.x.type.dtype not in PRECISIONS:
        return None
    squares = _squares(fgraph, reduction)
    found = {term: _reduce(squares, term) for term in squares.of_term} if squares else {}
    parts = {term: each for term, each in found.items() if isinstance(each, ReducedSquare)}
    if squares and parts and not is_needed_by_row(fgraph, reduction):
        return _replacement(reduction, squares, parts)
    refusals = [each for each in found.values() if isinstance(each, Refusal)]
    for refusal in [NEEDED_ROW_BY_ROW] if parts else refusals:
        decisions.refused(NAME, reduction.out, refusal)
    return None


def _squares(fgraph: FunctionGraph, reduction: Reduction) -> Squares | None:
    """Return the squares of a sum over all rows. The grid has no rows if their number is unknown."""
    x, axes = reduction.x, reduction.long_axes
    if not axes or any(a not in axes and not b for a, b in enumerate(x.type.broadcastable)):
        return None
    shape = reduction.lengths_of(axes) or (0,) * len(axes)
    if 0 < prod(shape) <= OVERHEAD:
        return None
    reads, where = reads_of(fgraph, shape), {axis: k for k, axis in enumerate(axes)}
    tree = split(reads.grid, x, where)
    of_term, expansion = {}, Expansion(reads.grid)
    for term in terms_of(tree):
        has_rows = term.mask is None or term.mask.any()
        is_read = has_rows and term.factor is not None
        square = parse_square(expansion, term.factor, where) if is_read else None
        if square is not None:
            weights = Monomial(tuple(Factor(weight, where) for weight in term.weights))
            of_term[term] = square._replace(multiplier=square.multiplier.by(weights))
    return Squares(reads, where, tree, of_term, expansion)


def _reduce(squares: Squares, term: Term) -> ReducedSquare | Refusal:
    """Return the sum of a square over its rows, or a refusal."""
    grid, square = squares.reads.grid, squares.of_term[term]
    if not grid.n_rows:
        return why_unknown(squares.tree.x)
    if square.multiplier.depends_on_data or square.scale.depends_on_data:
        return WEIGHTS_OF_DATA
    cells = _cells(squares, term)
    if cells is None:
        return _why_no_cells(squares, square)
    design = build_design(square, cells)
    n_rows, k, n = int(cells.counts.sum()), len(design.covariates), cells.n
    n_by_cell, n_shared = count_squares(cells, square, design)
    n_squares = n_by_cell * n + n_shared
    if n_squares >= MAX_DISTINCT_SHARE * n_rows or n_rows - n_squares < OVERHEAD:
        return COUNTS.about(k=k, n=n_rows, cells=n)
    if n_squares >= Grouping(squares.reads, squares.where).alone(term).n_cells:
        return COMPACTED
    if n_by_cell > MOST_UNROLLED:
        return TOO_MANY_PARAMETERS.about(k=n_by_cell, most=MOST_UNROLLED)
    weights = row_weights(grid, cells, square)
    if weights is None or not np.isfinite(weights.of_rows).all():
        return BAD_CONSTANTS
    if not weights.of_rows.all():
        return ZERO_WEIGHTS
    dtype = squares.tree.x.type.dtype
    n_own = None if is_scaled_by_cell(cells, square) else design.n_cell_specific
    factors = factors_of_design(grid, cells, design, weights.of_rows, n_own, dtype)
    if factors is None:
        return BAD_CONSTANTS
    summed = sum_of_squares(cells, square, design, factors, dtype)
    return ReducedSquare(-summed if weights.is_negative else summed, n_rows, n_squares, n)


def _cells(squares: Squares, term: Term) -> GaussianCells | None:
    """Return the cells in which a square reads one value of each parameter, None if there are too many."""
    reads, square = squares.reads, squares.of_term[term]
    columns = frozenset[int]().union(*(reads.of(f.x, f.where).columns for f in square.unknowns))
    if term.mask is not None:
        columns = reads.keys.differing(columns, term.mask)
    codes = reads.keys.codes(columns)
    if codes is None:
        return None
    x = squares.tree.x
    return GaussianCells(reads, columns, codes, x.type.dtype, term.mask, length_checks(x))


def _why_no_cells(squares: Squares, square: Square) -> Refusal:
    """Return the reason why few rows share the same parameters."""
    reads = squares.reads
    for x, where, _ in square.unknowns:
        if reads.codes(x, where) is None:
            is_computed = bool(reads.grid.view(x, where).inputs)
            own = why_row_specific(reads.grid, where, [x])
            if own is None and view_key(x, where) in squares.expansion.too_long:
                return TOO_MANY_PRODUCTS.about(most=MOST_MONOMIALS)
            return own or (NOT_LINEAR if is_computed else TOO_MANY_CELLS)
    return TOO_MANY_CELLS


def _replacement(
    reduction: Reduction, squares: Squares, parts: dict[Term, ReducedSquare]
) -> list[TensorVariable] | None:
    """Add the reduced squares and the sum of the other terms, and restore the checks."""
    x, out, where = reduction.x, reduction.out, squares.where

    def in_one_row(of_rows: TensorVariable) -> TensorVariable:
        return arrange_axes(of_rows, ["x", *rest_of(of_rows, where)])

    axes = ["x"] * (x.type.ndim - len(where))
    by_term = {term: arrange_axes(part.total, [0, *axes]) for term, part in parts.items()}
    result = arrange_axes(sum_at_cells(squares.tree, by_term, in_one_row), [])
    others = at_rows(squares.tree, {*terms_of(squares.tree)} - parts.keys())
    if others is not None:
        result = result + arrange_axes(reduce_all(reduction, others), [])
    checked = restore_checks(reduction, arrange_axes(result, ["x"] * out.type.ndim))
    if checked is None:
        return None
    for part in parts.values():
        decisions.fired(NAME, out, part.rows_before, part.rows_after, loop=part.n_cells)
    return [checked]
