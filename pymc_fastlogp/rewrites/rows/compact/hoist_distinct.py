r"""Evaluate a costly function once per distinct row, and gather the results.

.. code::

    f(c, theta[g])  ->  f(c_u, theta[g_u])[i]      c, g constants, u the distinct rows, i their numbers

Row compaction (:mod:`~pymc_fastlogp.rewrites.rows.compact.compact_rows`) is cheaper where a sum over rows can use it.
This rule handles rows that are needed one by one, and functions inside another function. In a mixture of negative
binomials, ``gammaln(y + alpha)`` depends on the count, while the rows also differ by their means. The gradient adds up
the contributions of equal rows before it evaluates the derivative of ``f``, here psi.

Values are unchanged. The gradient differs by the rounding of sums.

When it applies
---------------
- ``f`` is in :data:`COSTLY`: log-gamma, psi, incomplete gamma and beta functions, Bessel functions. A gather costs a
  load, and an addition in memory in the gradient, which vectorized ``exp`` and ``log`` hardly exceed.
- The rows read constants, parameters at constant indices, and values that all rows share.
- The distinct rows, along one axis or all, are fewer than 0.7 of the rows, and more than 32 evaluations are saved.

When it refuses
---------------
Rows that hardly repeat, variables with one value per row, an unknown number of rows.
"""

from collections.abc import Iterator
from math import prod

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import constant, moveaxis
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp import decisions
from pymc_fastlogp.analysis.elemwise import is_elemwise
from pymc_fastlogp.analysis.scalar_facts import Cost, ops_where
from pymc_fastlogp.ops import GammaDifference
from pymc_fastlogp.rewrites.loggamma.binet import Rising
from pymc_fastlogp.rewrites.replacement import replacement
from pymc_fastlogp.rewrites.rows.compact.grouping import OVERHEAD
from pymc_fastlogp.rewrites.rows.view.chunks import first_rows, rows_in
from pymc_fastlogp.rewrites.rows.view.columns import reads_of
from pymc_fastlogp.rewrites.rows.view.grid import ChosenRows
from pymc_fastlogp.rewrites.rows.view.keys import Codes
from pymc_fastlogp.rewrites.rows.view.length_checks import length_checks

NAME = "fastlogp_hoist_distinct"

COSTLY = (*ops_where(lambda facts: facts.cost >= Cost.SPECIAL), Rising, GammaDifference)


@node_rewriter([Elemwise])
def local_hoist_distinct(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``f(rows) -> f(distinct rows)[number of each row]``."""
    [out, *others] = node.outputs
    return None if others or not is_elemwise(node.op, *COSTLY) else hoisted(fgraph, out, NAME)


def hoisted(fgraph: FunctionGraph, out: TensorVariable, rule: str) -> list[TensorVariable] | None:
    """Return a replacement of ``out`` that is evaluated at distinct rows and gathered; None if rows hardly repeat."""
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
        replaced = replacement(out, _look_up(out, axes, shape, codes))
        if replaced is not None:
            decisions.fired(rule, out, prod(shape), codes.n_cells)
        return replaced
    return None


def grids(x: TensorVariable) -> Iterator[tuple[int, ...]]:
    """Yield the sets of axes along which rows may be distinct together: one axis, or all."""
    axes = tuple(axis for axis in range(x.type.ndim) if not x.type.broadcastable[axis])
    yield from ((axis,) for axis in axes)
    if len(axes) > 1:
        yield axes


def _look_up(
    x: TensorVariable, axes: tuple[int, ...], shape: tuple[int, ...], codes: Codes
) -> TensorVariable:
    """Return ``x`` evaluated at the first row of each cell, and indexed by cell."""
    firsts = np.unravel_index(first_rows(codes.of_row, codes.n_cells, rows_in(None, shape)), shape)
    chosen = ChosenRows(shape, codes.n_cells, length_checks(x))
    distinct = chosen.at(x, dict(zip(axes, firsts, strict=True)))
    rows = distinct[constant(codes.of_row.astype("int64").reshape(shape))]
    return moveaxis(rows, range(len(axes)), axes)
