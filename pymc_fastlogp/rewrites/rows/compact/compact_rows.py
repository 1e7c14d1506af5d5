r"""Sum over the distinct rows of a likelihood, with weights.

.. code::

    sum(c * f(theta[g], x))     ->  sum(C * f(theta[g_u], x_u))      c, g, x constants
    all(f(theta[g], x) > 0)     ->  all(f(theta[g_u], x_u) > 0)

The summand of a row is a sum of terms, :math:`\sum_i \sum_t c_{ti} h_t(k_{ti})`. The key :math:`k_{ti}` contains the
constants that the term reads in the row, and :math:`c_{ti}` is a constant weight. Rows with equal keys are a *cell*,
and share one evaluation:

.. math::

    \sum_i c_i h(k_i) = \sum_u C_u h(u), \qquad C_u = \sum_{i : k_i = u} c_i

For :math:`c = 1` this removes duplicates, and :math:`C_u` counts rows. For :math:`c = y` the sums :math:`C_u` are the
sufficient statistics of an exponential family: a Poisson likelihood ``y * eta[g] - exp(eta[g])`` becomes
``Y * eta - N * exp(eta)`` with one term per group.

:math:`h` is unchanged, so both sides differ by the rounding of sums and weights only. Splitting may move apart terms of
a row that cancel, so the error is relative to the sum of absolute terms. Keys are compared by their bits: ``-0.0`` is
not ``0.0``. Where :math:`h` is finite but a derivative is infinite, the gradient may be infinite instead of NaN,
because weights are summed before they meet the derivative.

The parts of the derivation:

- :mod:`~pymc_fastlogp.rewrites.rows.view.grid`: the entries that a row reads, through elementwise functions, gathers
  with constant indices, reductions over other axes, joins, slices, softmax and products with a matrix;
- :mod:`~pymc_fastlogp.rewrites.rows.compact.terms`: splitting of a summand into terms;
- :mod:`~pymc_fastlogp.rewrites.rows.compact.grouping`: which terms share a loop over cells, and when compaction pays;
- :mod:`~pymc_fastlogp.rewrites.rows.compact.cells`: weights, and infinite terms.

When it applies
---------------
- A ``Sum`` of floats, or an ``All``, over one or several axes, directly or below parameter checks of PyMC. Checks are
  kept.
- The rows read constants, and parameters at constant indices: numpy data, or frozen ``pm.Data``.
- The distinct keys of a term are fewer than 0.7 of the rows, and at least 32 evaluations are saved.

Terms with keys that hardly repeat stay in a loop over the rows: with a continuous covariate in a negative binomial
likelihood, ``gammaln(y + alpha)`` alone moves to the distinct counts.

When it refuses
---------------
Each refusal is logged with its reason by the logger ``pymc_fastlogp``:

- ``pm.Data`` that is not frozen, or another shared variable.
- A variable with one value per row, such as a latent variable per observation.
- Random numbers that are drawn in each evaluation, and minibatches.
- A summand with another reader, such as an elementwise log-likelihood that is an output.
- Too few repeats, or an unknown number of rows.
- Weights of equal rows whose sums overflow.

A check of values that the density computes in each row anyway stays, without a log message: distinct rows would compute
these values a second time.
"""

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.traversal import walk
from pytensor.tensor.basic import Join, constant, switch
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.math import All, Sum
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp import decisions
from pymc_fastlogp.analysis.algebra import add_all
from pymc_fastlogp.analysis.gathers import SELECTIONS, Where
from pymc_fastlogp.decisions import Refusal
from pymc_fastlogp.rewrites.rows.compact.cells import WeightedCells
from pymc_fastlogp.rewrites.rows.compact.grouping import (
    MIN_CELL_RATIO,
    OVERHEAD,
    CellLoop,
    Grouping,
)
from pymc_fastlogp.rewrites.rows.compact.reductions import (
    PRECISIONS,
    Reduction,
    is_needed_by_row,
    parse_reduction,
    reduce_all,
    reduce_rows,
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
    NEEDED_ROW_BY_ROW,
    NO_SUMS,
    why_distinct,
    why_unknown,
)
from pymc_fastlogp.rewrites.rows.view.columns import RowReads, is_cheap, reads_of
from pymc_fastlogp.rewrites.rows.view.grid import ChosenRows, Grid
from pymc_fastlogp.rewrites.rows.view.length_checks import length_checks

NAME = "fastlogp_compact_rows"


class Compaction(NamedTuple):
    """The axes of a reduction that are compacted together, with the terms and loops."""

    grid: Grid
    where: Where
    tree: Tree
    loops: list[CellLoop]


@node_rewriter([Sum, All])
def local_compact_rows(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``sum(c * h[rows]) -> sum(C * h[distinct rows])``."""
    reduction = parse_reduction(node)
    if isinstance(node.op, Sum) and reduction.x.type.dtype not in PRECISIONS:
        return None
    compaction = _distinct_rows(fgraph, reduction)
    if isinstance(compaction, Refusal):
        decisions.refused(NAME, reduction.out, compaction)
        return None
    if compaction is None or (
        isinstance(node.op, All) and _is_better_by_row(fgraph, node, compaction)
    ):
        return None
    return _replacement(reduction, compaction)


def _is_better_by_row(fgraph: FunctionGraph, node: Apply, compaction: Compaction) -> bool:
    """Return whether a check stays at rows that the density computes anyway, unless cells are four times fewer."""
    n_cells = sum(loop.n_cells for loop in compaction.loops)
    return MIN_CELL_RATIO * n_cells > compaction.grid.n_rows and _is_computed_anyway(fgraph, node)


def _is_computed_anyway(fgraph: FunctionGraph, check: Apply) -> bool:
    """Return whether every costly input of a check has readers other than checks.

    The density is compacted before its checks, so its remaining reads by row are known.
    """
    costly = list(_costly(check.inputs[0]))
    return bool(costly) and not any(_is_for_checks_alone(fgraph, x) for x in costly)


def _costly(x: TensorVariable) -> Iterator[TensorVariable]:
    """Yield the costly expressions from which cheap row-wise arithmetic computes ``x``."""

    def operands(x: TensorVariable) -> list[TensorVariable]:
        if x.owner is None or isinstance(x.owner.op, AdvancedSubtensor):  # rows of a table
            return []
        return x.owner.inputs if is_cheap(x) and _is_by_row(x.owner) else []

    return (y for y in walk([x], operands) if y.owner is not None and not is_cheap(y))


def _is_for_checks_alone(fgraph: FunctionGraph, x: TensorVariable) -> bool:
    """Return whether every row-wise path from ``x`` ends in a check."""

    def readers(x: TensorVariable) -> list[Apply]:
        return [node for node, _ in fgraph.clients[x]]

    def further(node: Apply) -> list[Apply]:
        return readers(node.outputs[0]) if _is_by_row(node) else []

    ends = (node for node in walk(readers(x), further) if not _is_by_row(node))
    return all(isinstance(node.op, All) for node in ends)


def _is_by_row(node: Apply) -> bool:
    """Return whether the output of a node has an entry per row."""
    is_reduction = isinstance(node.op, CAReduce) and node.outputs[0].type.ndim > 0
    return is_reduction or isinstance(node.op, (Elemwise, Join, *SELECTIONS))


def _distinct_rows(fgraph: FunctionGraph, reduction: Reduction) -> Compaction | Refusal | None:
    """Return the compaction, a refusal, or None if there are too few rows to gain."""
    refusal = None
    for axes in _grids(reduction):
        shape = reduction.lengths_of(axes)
        if shape is None:
            return why_unknown(reduction.x)
        if prod(shape) <= OVERHEAD:
            continue
        compaction = _compaction(reads_of(fgraph, shape), reduction, axes)
        if any(loop.codes is not None for loop in compaction.loops):
            return NEEDED_ROW_BY_ROW if is_needed_by_row(fgraph, reduction) else compaction
        if decisions.are_heard():
            terms = [term for loop in compaction.loops for term in loop.terms]
            refusal = why_distinct(compaction.grid, compaction.where, terms)
    return refusal


def _grids(reduction: Reduction) -> Iterator[tuple[int, ...]]:
    """Yield the sets of axes that may be compacted together: all reduced axes, or one of them."""
    axes = reduction.long_axes
    if axes:
        yield axes
    if len(axes) > 1:
        yield from ((axis,) for axis in axes)


def _compaction(reads: RowReads, reduction: Reduction, axes: tuple[int, ...]) -> Compaction:
    """Return the tree of terms of a reduction, and the loops over cells that add the terms up."""
    where = {axis: k for k, axis in enumerate(axes)}
    x, is_sum = reduction.x, isinstance(reduction.node.op, Sum)
    tree = split(reads.grid, x, where) if is_sum else Term(x, x)
    return Compaction(reads.grid, where, tree, Grouping(reads, where).loops(terms_of(tree)))


def _replacement(reduction: Reduction, compaction: Compaction) -> list[TensorVariable] | None:
    """Reduce each loop, add the results, and restore the checks."""
    try:
        parts = [_reduce_loop(reduction, compaction, loop) for loop in compaction.loops]
    except OverflowError:
        decisions.refused(NAME, reduction.out, NO_SUMS)
        return None
    result = restore_checks(reduction, add_all(parts))
    if result is None:
        return None
    n_cells = [
        loop.n_cells for loop in compaction.loops if not (loop.codes is None or loop.is_constant)
    ]
    for n in n_cells or [0]:
        decisions.fired(NAME, reduction.out, compaction.grid.n_rows, n)
    return [result]


def _reduce_loop(reduction: Reduction, compaction: Compaction, loop: CellLoop) -> TensorVariable:
    """Return the reduction of the terms of one loop, over distinct cells or over all rows."""
    if loop.codes is None:
        of_rows = at_rows(compaction.tree, set(loop.terms))
        assert of_rows is not None
        return reduce_all(reduction, of_rows)
    cells = WeightedCells(loop, compaction.grid, compaction.where, reduction.x.type.dtype)
    in_cells = _in_cells(compaction, loop, cells, is_sum=isinstance(reduction.node.op, Sum))
    return reduce_rows(reduction, compaction.where, in_cells, cells.n)


def _in_cells(
    compaction: Compaction, loop: CellLoop, cells: WeightedCells, *, is_sum: bool
) -> TensorVariable:
    """Return the summand of a loop at one row per cell, with weights."""
    chosen = ChosenRows(compaction.grid.shape, cells.n, length_checks(compaction.tree.x))
    anywhere = cells.rows(None)
    at = partial(chosen.at, where=anywhere)
    factors = {
        term: chosen.at(term.factor, anywhere if term.mask is None else cells.rows(term.mask))
        for term in loop.terms
        if term.factor is not None
    }
    if not is_sum:
        [factor] = factors.values()
        return factor
    if all(term in factors and term.mask is None and not term.weights for term in loop.terms):
        once = sum_at_cells(compaction.tree, factors, at)
        counts = cells.counts(None)
        return once if (counts == 1).all() else _aligned(counts, once.type.ndim) * once
    weighted = {term: _weighted(term, factors.get(term), cells) for term in loop.terms}
    return sum_at_cells(compaction.tree, weighted, at)


def _weighted(term: Term, factor: TensorVariable | None, cells: WeightedCells) -> TensorVariable:
    """Return a term in each cell, summed over the rows of its mask; zero in cells without such rows."""
    counts = cells.counts(term.mask)
    ndim = term.x.type.ndim - len(cells.where) + 1
    weights = cells.weights(term) if term.weights else [counts]
    if factor is None:
        return _aligned(weights[0], ndim)
    weighted = add_all(_aligned(weight, ndim) * factor for weight in weights)
    return weighted if counts.all() else switch(_aligned(counts > 0, ndim), weighted, 0)


def _aligned(of_cells: np.ndarray, ndim: int) -> TensorVariable:
    """Return a constant with the cells as its first axis, and ``ndim`` axes."""
    return constant(of_cells.reshape(*of_cells.shape, *(1,) * (ndim - of_cells.ndim)))
