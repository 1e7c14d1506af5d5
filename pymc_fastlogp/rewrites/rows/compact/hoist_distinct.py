r"""Evaluate a costly function once for each distinct row that it reads, and look the results up.

.. code::

    f(c, theta[g])  ->  f(c_u, theta[g_u])[i]      c, g constants, u the distinct rows, i their numbers

In a sum over rows the rule of :mod:`~pymc_fastlogp.rewrites.rows.compact.compact_rows` does better, since it needs no row
at all. This one is for what that leaves: rows that are needed one by one, and functions inside of another, as
``gammaln(y + alpha)`` in a mixture of negative binomials, whose rows differ by their means. The gradient follows:
what the rows send back is added up by distinct row, before the derivative of ``f``, here psi, is evaluated there.

Looking a result up costs a load, and an addition in memory for the gradient. In vectors, exp or log cost not
much more. So only functions that take several times as long are looked at, in :data:`COSTLY`.
"""

from collections.abc import Iterator
from math import prod

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import constant, moveaxis
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp import decisions
from pymc_fastlogp.analysis.elemwise import is_elemwise
from pymc_fastlogp.analysis.scalar_facts import Cost, ops_where
from pymc_fastlogp.rewrites.loggamma.binet import Rising
from pymc_fastlogp.rewrites.loggamma.gamma_difference import GammaDifference
from pymc_fastlogp.rewrites.rows.compact.grouping import OVERHEAD
from pymc_fastlogp.rewrites.rows.view.chunks import first_rows, rows_in
from pymc_fastlogp.rewrites.rows.view.columns import reads_of
from pymc_fastlogp.rewrites.rows.view.grid import ChosenRows
from pymc_fastlogp.rewrites.rows.view.keys import Codes
from pymc_fastlogp.rewrites.rows.view.open_lengths import comparisons

NAME = "fastlogp_hoist_distinct"

COSTLY = (*ops_where(lambda facts: facts.cost >= Cost.SPECIAL), Rising, GammaDifference)


@node_rewriter([Elemwise])
def local_hoist_distinct(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``f(rows) -> f(distinct rows)[number of each row]``."""
    [out, *others] = node.outputs
    return None if others or not is_elemwise(node.op, *COSTLY) else hoisted(fgraph, out, NAME)


def hoisted(fgraph: FunctionGraph, out: TensorVariable, rule: str) -> list[TensorVariable] | None:
    """Return what replaces ``out``, evaluated at distinct rows and looked up; None if rows hardly repeat."""
    if out.type.dtype not in float_dtypes:
        return None
    for axes in grids(out):
        shape = tuple(length for axis in axes if (length := out.type.shape[axis]) is not None)
        if len(shape) < len(axes) or prod(shape) <= OVERHEAD:
            continue
        where = {axis: k for k, axis in enumerate(axes)}
        codes = reads_of(fgraph, shape).codes(out, where)
        if codes is None or prod(shape) - codes.n_cells <= OVERHEAD:
            continue
        looked_up = _look_up(out, axes, shape, codes)
        if not out.type.is_super(looked_up.type):
            return None
        copy_stack_trace(out, looked_up)
        decisions.fired(rule, out, prod(shape), codes.n_cells)
        return [looked_up]
    return None


def grids(x: TensorVariable) -> Iterator[tuple[int, ...]]:
    """Yield the axes that can be made distinct together: one of them, or all."""
    axes = tuple(axis for axis in range(x.type.ndim) if not x.type.broadcastable[axis])
    yield from ((axis,) for axis in axes)
    if len(axes) > 1:
        yield axes


def _look_up(
    x: TensorVariable, axes: tuple[int, ...], shape: tuple[int, ...], codes: Codes
) -> TensorVariable:
    """Return ``x`` evaluated at the first of each kind of row, and indexed by kind."""
    firsts = np.unravel_index(first_rows(codes.of_row, codes.n_cells, rows_in(None, shape)), shape)
    chosen = ChosenRows(shape, codes.n_cells, comparisons(x))
    distinct = chosen.at(x, dict(zip(axes, firsts, strict=True)))
    rows = distinct[constant(codes.of_row.astype("int64").reshape(shape))]
    return moveaxis(rows, range(len(axes)), axes)
