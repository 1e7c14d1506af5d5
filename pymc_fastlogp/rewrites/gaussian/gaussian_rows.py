r"""Sum squares of linear predictors over the rows of a triangle, not over those of the data.

.. code::

    sum(((y - a[g] - b[g] * x) / s) ** 2)
    ->  (sum((r0 * ((a - a0) + t * (b - b0)) + d0) ** 2 + (r1 * (b - b0) + d1) ** 2) + rest) / s**2

Rows of which all that is not a constant reads the same make a cell; here a cell is a group. In it
the residuals are :math:`t + C h` with a known target :math:`t`, known covariates :math:`C` and a
few parameters :math:`h`. The sum of their squares is a quadratic in :math:`h`, which is a sum of as
many squares as there are parameters, plus a constant: the derivation is in
:mod:`~pymc_fastlogp.rewrites.gaussian.factor`. Squares that read only what all cells share are those
of one cell in turn (:mod:`~pymc_fastlogp.rewrites.gaussian.sums`).

No family of distributions is known here: any square of something affine counts
(:mod:`~pymc_fastlogp.rewrites.gaussian.squares`), the density of a normal, log-normal or half-normal
variable among them, with a scale that is shared, known in each row, or of a group.

A square costs about as much as the row of the data that it is one of many in the place of: as many
products as there are parameters. So the rule asks that squares are fewer than 0.7 of the rows; with
:math:`k` parameters of each cell and :math:`p` that all share,

.. math:: k n_\text{cells} + p + 1 < 0.7 \, n_\text{rows},

or, where each cell has a scale of its own, :math:`(k + p + 1) n_\text{cells}`. A term of which
row compaction would leave no more rows is left to that.
"""

from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.math import Sum
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp import decisions
from pymc_fastlogp.analysis.gathers import Where
from pymc_fastlogp.rewrites.gaussian.cells import GaussianCells
from pymc_fastlogp.rewrites.gaussian.design import design_of, rows_of, weights_of
from pymc_fastlogp.rewrites.gaussian.factor import factorised
from pymc_fastlogp.rewrites.gaussian.squares import Factor, Monomial, Square, parse_square
from pymc_fastlogp.rewrites.gaussian.sums import (
    DONE,
    MOST_UNROLLED,
    NAME,
    squares_left,
    sum_of_squares,
)
from pymc_fastlogp.rewrites.rows.compact_rows import Reduction, as_long_as, is_needed_by_row, parse
from pymc_fastlogp.rewrites.rows.grouping import OVERHEAD, Grouping
from pymc_fastlogp.rewrites.rows.keys import WORTHWHILE
from pymc_fastlogp.rewrites.rows.refusals import NEEDED_ROW_BY_ROW, why_own_entries, why_unknown
from pymc_fastlogp.rewrites.rows.terms import (
    Term,
    Tree,
    at_rows,
    split,
    sum_at_cells,
    terms_of,
)
from pymc_fastlogp.rewrites.rows.views import Grid, moved, rest_of, static_length

TOO_MANY_CELLS = "too few rows read the same parameters"
COUNTS = TOO_MANY_CELLS + ": {n} rows in {cells} cells with {k} parameters each"
NOT_LINEAR = "the predictor is not linear in a covariate that differs from row to row"
TOO_MANY_PARAMETERS = "too many parameters in each cell: {k}, where {most} is the most"
COMPACTED = "the rows repeat so often that row compaction leaves as few"
ZERO_WEIGHTS = (
    "some weights are zero, and 0 * inf is nan where a square is infinite: "
    "leave out the rows of weight zero"
)
BAD_CONSTANTS = "its constants are not finite, or some weights are positive and others negative"


class Squares(NamedTuple):
    """The squares in what is summed over rows.

    Attributes
    ----------
    grouping : Grouping
        Of the rows.
    tree : Term or Branch
        All the terms.
    of_term : dict
        Those that are squares.
    """

    grouping: Grouping
    tree: Tree
    of_term: dict[Term, Square]

    @property
    def grid(self) -> Grid:
        """Return the rows."""
        return self.grouping.grid

    @property
    def where(self) -> Where:
        """Return which axes the rows are."""
        return self.grouping.where


class Reduced(NamedTuple):
    """The sum of a square over its rows, shape ``(1,)``, and how many rows there were and are."""

    total: TensorVariable
    rows_before: int
    rows_after: int


@node_rewriter([Sum])
def local_gaussian_rows(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``sum(sqr(y - X[rows] @ b[g])) -> sum(sqr(R[cells] @ (b[g] - b0) + d))``."""
    out = node.outputs[0]
    if getattr(out.tag, NAME, None) == DONE or out.type.dtype not in float_dtypes:
        return None
    reduction = parse(node)
    squares = _squares(reduction)
    if squares is None or not squares.of_term:
        return None
    is_needed = is_needed_by_row(fgraph, reduction)
    if is_needed and decisions.was_refused(NAME, out, NEEDED_ROW_BY_ROW):
        return None
    if not squares.grid.n_rows:
        decisions.refused(NAME, out, why_unknown(reduction.x))
        return None
    parts = {}
    for term, square in squares.of_term.items():
        reduced = _reduce(squares, term, square)
        if isinstance(reduced, str):
            decisions.refused(NAME, out, reduced)
        else:
            parts[term] = reduced
    if parts and is_needed:
        decisions.refused(NAME, out, NEEDED_ROW_BY_ROW)
        return None
    return _replacement(reduction, squares, parts) if parts else None


def _squares(reduction: Reduction) -> Squares | None:
    """Return the squares of a total sum, with no rows where their number is not known."""
    x = reduction.x
    axes = [a for a in range(x.type.ndim) if not x.type.broadcastable[a]]
    if not axes or not set(axes) <= set(reduction.axes):
        return None
    grid = Grid(tuple(static_length(x, axis) or 0 for axis in axes))
    if 0 < grid.n_rows <= OVERHEAD:
        return None
    where = {axis: k for k, axis in enumerate(axes)}
    tree = split(grid, x, where)
    of_term = {}
    for term in terms_of(tree):
        square = None if term.factor is None else parse_square(grid, term.factor, where)
        if square is not None:
            weights = Monomial(tuple(Factor(weight, where) for weight in term.weights))
            of_term[term] = square._replace(multiplier=square.multiplier.by(weights))
    return Squares(Grouping(grid, where), tree, of_term)


def _reduce(squares: Squares, term: Term, square: Square) -> Reduced | str:
    """Return the sum of a square over its rows, or why it stays as it is."""
    cells = _cells(squares, term, square)
    if cells is None:
        return _why_no_cells(squares, square)
    design = design_of(square, cells)
    n_rows, k, n = int(cells.counts.sum()), len(design.covariates), cells.n
    n_by_cell, n_shared = squares_left(cells, square, design)
    n_squares = n_by_cell * n + n_shared
    if n_squares >= WORTHWHILE * n_rows or n_rows - n_squares < OVERHEAD:
        return COUNTS.format(k=k, n=n_rows, cells=n)
    if n_squares >= squares.grouping.alone(term).n_cells:
        return COMPACTED
    if n_by_cell > MOST_UNROLLED:
        return TOO_MANY_PARAMETERS.format(k=n_by_cell, most=MOST_UNROLLED)
    weights = weights_of(squares.grid, cells, square)
    if weights is None or not np.isfinite(weights.of_rows).all():
        return BAD_CONSTANTS
    if not weights.of_rows.all():
        return ZERO_WEIGHTS
    read = rows_of(squares.grid, cells, design)
    factor = factorised(read, weights.of_rows, cells.counts)
    if factor is None:
        return BAD_CONSTANTS
    summed = sum_of_squares(cells, square, design, factor, squares.tree.x.type.dtype)
    return Reduced(-summed if weights.is_negative else summed, n_rows, n_squares)


def _cells(squares: Squares, term: Term, square: Square) -> GaussianCells | None:
    """Return the cells in which a square reads one value of each parameter, None if too many."""
    grouping = squares.grouping
    columns = frozenset[int]().union(
        *(grouping.reads_of(f.x, f.where).columns for f in square.others)
    )
    if term.mask is not None:
        columns = frozenset(c for c in columns if not grouping.keys.is_same_in(c, term.mask))
    codes = grouping.keys.codes(columns)
    return None if codes is None else GaussianCells(grouping, columns, codes, term.mask)


def _why_no_cells(squares: Squares, square: Square) -> str:
    """Say why no rows read the same of what is not constant."""
    grouping = squares.grouping
    for x, where, _ in square.others:
        if grouping.keys.codes(grouping.reads_of(x, where).columns) is None:
            is_computed = bool(squares.grid.view(x, where).inputs)
            own = why_own_entries(squares.grid, where, [x])
            return own or (NOT_LINEAR if is_computed else TOO_MANY_CELLS)
    return TOO_MANY_CELLS


def _replacement(
    reduction: Reduction, squares: Squares, parts: dict[Term, Reduced]
) -> list[TensorVariable] | None:
    """Add what the squares sum to and the sum of the other terms, and put the checks back."""
    x, out, where = reduction.x, reduction.node.outputs[0], squares.where

    def in_one_row(of_rows: TensorVariable) -> TensorVariable:
        return moved(of_rows, ["x", *rest_of(of_rows, where)])

    axes = ["x"] * (x.type.ndim - len(where))
    by_term = {term: moved(part.total, [0, *axes]) for term, part in parts.items()}
    result = moved(sum_at_cells(squares.tree, by_term, in_one_row), [])
    others = at_rows(squares.tree, {*terms_of(squares.tree)} - parts.keys())
    if others is not None:
        lengths = [x.shape[axis] if n is None else n for axis, n in enumerate(x.type.shape)]
        summed = reduction.node.op(as_long_as(others, lengths))
        summed.name = out.name  # what row compaction says of it is about the same likelihood
        result = result + moved(summed, [])
    result = moved(result, ["x"] * out.type.ndim)
    for check in reversed(reduction.checks):
        result = check.op(result, *check.inputs[1:])
    if not out.type.is_super(result.type):
        return None
    copy_stack_trace(out, result)
    for part in parts.values():
        decisions.fired(NAME, out, part.rows_before, part.rows_after)
    return [result]
