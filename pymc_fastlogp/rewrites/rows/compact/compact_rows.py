r"""Sum over the distinct rows of a likelihood instead of over all of them.

.. code::

    sum(c * f(theta[g], x))     ->  sum(C * f(theta[g_u], x_u))      c, g, x constants
    all(f(theta[g], x) > 0)     ->  all(f(theta[g_u], x_u) > 0)

A row is summed as :math:`\sum_i \sum_t c_{ti} h_t(k_{ti})`: terms that read of it nothing but
constants, their key :math:`k_{ti}`, times a constant weight. Rows with the same key share one
evaluation:

.. math::

    \sum_i c_i h(k_i) = \sum_u C_u h(u), \qquad C_u = \sum_{i : k_i = u} c_i

This is deduplication for :math:`c = 1`, and the sufficient statistics of a linear exponential
family for :math:`c = y`. The gradient follows, since it is taken of the right side. How rows are
read is in :mod:`~pymc_fastlogp.rewrites.rows.view.row_view`, how terms are split in
:mod:`~pymc_fastlogp.rewrites.rows.compact.terms`, which of them share a loop, and when that pays, in
:mod:`~pymc_fastlogp.rewrites.rows.compact.grouping`, and what the weights do to infinities in
:mod:`~pymc_fastlogp.rewrites.rows.compact.cells`.

Nothing is expanded: :math:`h` at a cell is bit for bit what it was in its rows, and the two
sides differ by the rounding of sums and weights alone.
"""

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import constant, switch
from pytensor.tensor.math import All, Sum
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp import decisions
from pymc_fastlogp.analysis.algebra import add_all
from pymc_fastlogp.analysis.gathers import Where
from pymc_fastlogp.decisions import Refusal
from pymc_fastlogp.rewrites.rows.compact.cells import Cells
from pymc_fastlogp.rewrites.rows.compact.checked_rows import is_computed_anyway
from pymc_fastlogp.rewrites.rows.compact.grouping import FEWER, OVERHEAD, Grouping, Loop
from pymc_fastlogp.rewrites.rows.compact.reductions import (
    PRECISIONS,
    Reduction,
    checked,
    is_needed_by_row,
    parse_reduction,
    reduce_all,
    reduce_rows,
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
from pymc_fastlogp.rewrites.rows.view.columns import RowReads, reads_of
from pymc_fastlogp.rewrites.rows.view.grid import Grid
from pymc_fastlogp.rewrites.rows.view.open_lengths import comparisons

NAME = "fastlogp_compact_rows"


class Rows(NamedTuple):
    """The axes of a reduction that are compacted together, with the terms and loops they give."""

    grid: Grid
    where: Where
    tree: Tree
    loops: list[Loop]


@node_rewriter([Sum, All])
def local_compact_rows(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``sum(c * h[rows]) -> sum(C * h[distinct rows])``."""
    reduction = parse_reduction(node)
    if isinstance(node.op, Sum) and reduction.x.type.dtype not in PRECISIONS:
        return None
    rows = _distinct_rows(fgraph, reduction)
    if isinstance(rows, Refusal):
        decisions.refused(NAME, reduction.out, rows)
        return None
    if rows is None or (isinstance(node.op, All) and _is_better_by_row(fgraph, node, rows)):
        return None
    return _replacement(reduction, rows)


def _is_better_by_row(fgraph: FunctionGraph, node: Apply, rows: Rows) -> bool:
    """Return whether a check should stay with rows that the density computes anyway, of which there are not many times fewer cells."""
    n_cells = sum(loop.n_cells for loop in rows.loops)
    return FEWER * n_cells > rows.grid.n_rows and is_computed_anyway(fgraph, node)


def _distinct_rows(fgraph: FunctionGraph, reduction: Reduction) -> Rows | Refusal | None:
    """Return loops over cells, or why there are none; None where there are too few rows to gain."""
    refusal = None
    for axes in _grids(reduction):
        shape = reduction.lengths_of(axes)
        if shape is None:
            return why_unknown(reduction.x)
        if prod(shape) <= OVERHEAD:
            continue
        rows = _rows(reads_of(fgraph, shape), reduction, axes)
        if any(loop.codes is not None for loop in rows.loops):
            return NEEDED_ROW_BY_ROW if is_needed_by_row(fgraph, reduction) else rows
        if decisions.are_heard():
            terms = [term for loop in rows.loops for term in loop.terms]
            refusal = why_distinct(rows.grid, rows.where, terms)
    return refusal


def _grids(reduction: Reduction) -> Iterator[tuple[int, ...]]:
    """Yield the axes that can be compacted together: all that are reduced, or one of them."""
    axes = reduction.long_axes
    if axes:
        yield axes
    if len(axes) > 1:
        yield from ((axis,) for axis in axes)


def _rows(reads: RowReads, reduction: Reduction, axes: tuple[int, ...]) -> Rows:
    where = {axis: k for k, axis in enumerate(axes)}
    x, is_sum = reduction.x, isinstance(reduction.node.op, Sum)
    tree = split(reads.grid, x, where) if is_sum else Term(x, x)
    return Rows(reads.grid, where, tree, Grouping(reads, where).loops(terms_of(tree)))


def _replacement(reduction: Reduction, rows: Rows) -> list[TensorVariable] | None:
    """Reduce each loop, add the results, and put the checks back."""
    try:
        parts = [_reduce_loop(reduction, rows, loop) for loop in rows.loops]
    except OverflowError:
        decisions.refused(NAME, reduction.out, NO_SUMS)
        return None
    result = checked(reduction, add_all(parts))
    if result is None:
        return None
    n_cells = [loop.n_cells for loop in rows.loops if not (loop.codes is None or loop.is_constant)]
    for n in n_cells or [0]:
        decisions.fired(NAME, reduction.out, rows.grid.n_rows, n)
    return [result]


def _reduce_loop(reduction: Reduction, rows: Rows, loop: Loop) -> TensorVariable:
    if loop.codes is None:
        of_rows = at_rows(rows.tree, set(loop.terms))
        assert of_rows is not None
        return reduce_all(reduction, of_rows)
    cells = Cells(loop, rows.grid, rows.where, reduction.x.type.dtype)
    in_cells = _in_cells(rows, loop, cells, is_sum=isinstance(reduction.node.op, Sum))
    return reduce_rows(reduction, rows.where, in_cells, cells.n)


def _in_cells(rows: Rows, loop: Loop, cells: Cells, *, is_sum: bool) -> TensorVariable:
    """Return what is reduced of a loop: its terms at one row of each cell, with their weights."""
    grid = Grid(rows.grid.shape, cells.n, comparisons(rows.tree.x))
    anywhere = cells.rows(None)
    at = partial(grid.at, where=anywhere)
    factors = {
        term: grid.at(term.factor, anywhere if term.mask is None else cells.rows(term.mask))
        for term in loop.terms
        if term.factor is not None
    }
    if not is_sum:
        [factor] = factors.values()
        return factor
    if all(term in factors and term.mask is None and not term.weights for term in loop.terms):
        once = sum_at_cells(rows.tree, factors, at)
        counts = cells.counts(None)
        return once if (counts == 1).all() else _aligned(counts, once.type.ndim) * once
    weighted = {term: _weighted(term, factors.get(term), cells) for term in loop.terms}
    return sum_at_cells(rows.tree, weighted, at)


def _weighted(term: Term, factor: TensorVariable | None, cells: Cells) -> TensorVariable:
    """Return a term in each cell, summed over the rows of its mask; zero where there are none."""
    counts = cells.counts(term.mask)
    ndim = term.x.type.ndim - len(cells.where) + 1
    weights = cells.weights(term) if term.weights else [counts]
    if factor is None:
        return _aligned(weights[0], ndim)
    weighted = add_all(_aligned(weight, ndim) * factor for weight in weights)
    return weighted if counts.all() else switch(_aligned(counts > 0, ndim), weighted, 0)


def _aligned(of_cells: np.ndarray, ndim: int) -> TensorVariable:
    """Return a constant with the cells as its first axis, and as many axes as it should have."""
    return constant(of_cells.reshape(*of_cells.shape, *(1,) * (ndim - of_cells.ndim)))
