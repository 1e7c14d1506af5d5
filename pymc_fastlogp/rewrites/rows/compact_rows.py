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
read is in :mod:`~pymc_fastlogp.rewrites.rows.views`, how terms are split in
:mod:`~pymc_fastlogp.rewrites.rows.terms`, which of them share a loop, and when that pays, in
:mod:`~pymc_fastlogp.rewrites.rows.grouping`, and what the weights do to infinities in
:mod:`~pymc_fastlogp.rewrites.rows.cells`.

Nothing is expanded: :math:`h` at a cell is bit for bit what it was in its rows, and the two
sides differ by the rounding of sums and weights alone.
"""

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import alloc, constant, switch
from pytensor.tensor.math import All, Sum
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp import decisions
from pymc_fastlogp.analysis.gathers import Where
from pymc_fastlogp.rewrites.rows.cells import Cells
from pymc_fastlogp.rewrites.rows.grouping import OVERHEAD, Grouping, Loop
from pymc_fastlogp.rewrites.rows.refusals import NEEDED_ROW_BY_ROW, why_distinct, why_unknown
from pymc_fastlogp.rewrites.rows.terms import (
    Term,
    Tree,
    at_rows,
    split,
    sum_at_cells,
    terms_of,
    total,
)
from pymc_fastlogp.rewrites.rows.views import Grid, rest_of, static_length

NAME = "fastlogp_compact_rows"

# On the tag of a variable that this rule made, which it need not look at again.
DONE = "compacted"


class Reduction(NamedTuple):
    """A reduction over rows, with the checks that stand before it.

    Attributes
    ----------
    node : Apply
        Of a Sum or All.
    x : TensorVariable
        What is reduced, without the checks.
    checks : list of Apply
        The outermost first.
    axes : tuple of int
        Which axes are reduced.
    """

    node: Apply
    x: TensorVariable
    checks: list[Apply]
    axes: tuple[int, ...]


class Rows(NamedTuple):
    """The axes of a reduction that are compacted together, with the terms and loops they give."""

    grid: Grid
    where: Where
    tree: Tree
    loops: list[Loop]

    @property
    def at_rows(self) -> list[Term]:
        """Return the terms whose rows hardly repeat."""
        return [term for loop in self.loops if loop.codes is None for term in loop.terms]


@node_rewriter([Sum, All])
def local_compact_rows(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``sum(c * h[rows]) -> sum(C * h[distinct rows])``."""
    if getattr(node.outputs[0].tag, NAME, None) == DONE:
        return None
    reduction = parse(node)
    x, out = reduction.x, node.outputs[0]
    if isinstance(node.op, Sum) and x.type.dtype not in float_dtypes:
        return None
    is_needed = is_needed_by_row(fgraph, reduction)
    if is_needed and decisions.was_refused(NAME, out, NEEDED_ROW_BY_ROW):
        return None
    rows = None
    for axes in _grids(reduction):
        shape = tuple(length for axis in axes if (length := static_length(x, axis)) is not None)
        if len(shape) < len(axes):
            decisions.refused(NAME, out, why_unknown(x))
            return None
        if prod(shape) <= OVERHEAD:
            continue
        rows = _rows(reduction, axes, shape)
        if any(loop.codes is not None for loop in rows.loops):
            if not is_needed:
                return _replacement(reduction, rows)
            decisions.refused(NAME, out, NEEDED_ROW_BY_ROW)
            return None
    if rows is not None:
        decisions.refused(NAME, out, why_distinct(rows.grid, rows.where, rows.at_rows))
    return None


def parse(node: Apply) -> Reduction:
    """Return what a node of a reduction reduces, and the checks that stand before it."""
    [x], checks = node.inputs, []
    axes = tuple(range(x.type.ndim)) if node.op.axis is None else node.op.axis
    while isinstance(x.owner_op, CheckAndRaise):
        checks.append(x.owner)
        x = x.owner.inputs[0]
    return Reduction(node, x, checks, axes)


def is_needed_by_row(fgraph: FunctionGraph, reduction: Reduction) -> bool:
    """Whether anything else reads what is reduced."""
    of_rows = reduction.x, *(check.outputs[0] for check in reduction.checks)
    return any(len(fgraph.clients[x]) > 1 for x in of_rows)


def _grids(reduction: Reduction) -> Iterator[tuple[int, ...]]:
    """Yield the axes that can be compacted together: all that are reduced, or one of them."""
    axes = tuple(a for a in reduction.axes if not reduction.x.type.broadcastable[a])
    if axes:
        yield axes
    if len(axes) > 1:
        yield from ((axis,) for axis in axes)


def _rows(reduction: Reduction, axes: tuple[int, ...], shape: tuple[int, ...]) -> Rows:
    grid = Grid(shape)
    where = {axis: k for k, axis in enumerate(axes)}
    x, is_sum = reduction.x, isinstance(reduction.node.op, Sum)
    tree = split(grid, x, where) if is_sum else Term(x, x)
    return Rows(grid, where, tree, Grouping(grid, where).loops(terms_of(tree)))


def _replacement(reduction: Reduction, rows: Rows) -> list[TensorVariable] | None:
    """Reduce each loop, add the results, and put the checks back."""
    out = reduction.node.outputs[0]
    parts = [_reduce_loop(reduction, rows, loop) for loop in rows.loops]
    for part in parts:
        setattr(part.tag, NAME, DONE)
    result = total(parts)
    for check in reversed(reduction.checks):
        result = check.op(result, *check.inputs[1:])
    if not out.type.is_super(result.type):
        return None
    copy_stack_trace(out, result)
    n_cells = [loop.n_cells for loop in rows.loops if not (loop.codes is None or loop.is_constant)]
    for n in n_cells or [0]:
        decisions.fired(NAME, out, rows.grid.n_rows, n)
    if rows.at_rows:
        decisions.refused(NAME, out, why_distinct(rows.grid, rows.where, rows.at_rows))
    return [result]


def _reduce_loop(reduction: Reduction, rows: Rows, loop: Loop) -> TensorVariable:
    op, x = reduction.node.op, reduction.x
    lengths = [x.shape[axis] if n is None else n for axis, n in enumerate(x.type.shape)]
    if loop.codes is None:
        return op(as_long_as(at_rows(rows.tree, set(loop.terms)), lengths))
    cells = Cells(loop, rows.grid, rows.where, x.type.dtype)
    in_cells = _in_cells(rows, loop, cells, is_sum=isinstance(op, Sum))
    return reduce_rows(reduction, rows.where, in_cells, cells.n)


def reduce_rows(reduction: Reduction, where: Where, at: TensorVariable, n: int) -> TensorVariable:
    """Return the reduction of what was built at ``n`` rows, which come first, over all the same axes."""
    op, x = reduction.node.op, reduction.x
    rest = rest_of(x, where)
    lengths = (x.type.shape[axis] for axis in rest)
    known = [x.shape[axis] if n is None else n for axis, n in zip(rest, lengths, strict=True)]
    filled = as_long_as(at, [n, *known])
    axes = (0, *(1 + k for k, axis in enumerate(rest) if axis in reduction.axes))
    return op.clone(axis=None if len(axes) == filled.type.ndim else axes)(filled)


def _in_cells(rows: Rows, loop: Loop, cells: Cells, *, is_sum: bool) -> TensorVariable:
    """Return what is reduced of a loop: its terms at one row of each cell, with their weights."""
    grid = Grid(rows.grid.shape, cells.n)
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
    weighted = total(_aligned(weight, ndim) * factor for weight in weights)
    return weighted if counts.all() else switch(_aligned(counts > 0, ndim), weighted, 0)


def _aligned(of_cells: np.ndarray, ndim: int) -> TensorVariable:
    """Return a constant with the cells as its first axis, and as many axes as it should have."""
    return constant(of_cells.reshape(*of_cells.shape, *(1,) * (ndim - of_cells.ndim)))


def as_long_as(x: TensorVariable, lengths: list[Any]) -> TensorVariable:
    """Return ``x`` with the axes along which it does not vary filled up to these lengths."""
    is_long = [isinstance(n, TensorVariable) or n != 1 for n in lengths]
    if not any(b and n for b, n in zip(x.type.broadcastable, is_long, strict=True)):
        return x
    return alloc(x, *lengths)
