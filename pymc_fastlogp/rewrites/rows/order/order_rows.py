r"""Sort the rows of a likelihood by the index that pays most.

.. code::

    sum(f(theta[g], x))     ->  sum(f(theta[g[p]], x[p]))      g, x constants, p a permutation

A sum, or an ``all``, does not depend on the order of its rows,

.. math::

    \sum_i f(\theta_{g_i}, x_i) = \sum_i f(\theta_{g_{p_i}}, x_{p_i}),

and where all that rows read are constants, and entries of tables at constant indices, permuting these is free. Its gradient
adds up rows by group, which is cheapest where the rows of a group follow each other: a kernel then adds them in
registers, and in memory once for each group. Which order that is, and whether it is worth it, is decided in
:mod:`~pymc_fastlogp.rewrites.rows.order.scatter_order`. Whatever else reads the same rows is permuted alike, since loops over
them are to stay one; :mod:`~pymc_fastlogp.rewrites.rows.order.readers` finds it. The two sides differ by the rounding of the sum.

The rows may also be the cells that :mod:`~pymc_fastlogp.rewrites.rows.compact.compact_rows` has made. Rows that are in the best order are
left alone.
"""

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.graph.traversal import toposort
from pytensor.tensor.math import Sum
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp import decisions
from pymc_fastlogp.rewrites.rows.compact.grouping import OVERHEAD
from pymc_fastlogp.rewrites.rows.compact.reductions import Reduction, axes_of, reduce_rows
from pymc_fastlogp.rewrites.rows.order.readers import (
    RowReader,
    indices_of,
    length_of,
    readers_with,
    scattered_by,
    why_not,
)
from pymc_fastlogp.rewrites.rows.order.scatter_order import best_order, cheaper_order, sorted_by
from pymc_fastlogp.rewrites.rows.view.grid import ChosenRows

NAME = "fastlogp_order_rows"

Replacements = dict[TensorVariable, TensorVariable]


@node_rewriter([Sum])
def local_order_rows(fgraph: FunctionGraph, node: Apply) -> Replacements | None:
    """Rewrite ``sum(f(theta[g], x)) -> sum(f(theta[g[p]], x[p]))`` with sorted ``g[p]``."""
    out = node.outputs[0]
    if out.type.dtype not in float_dtypes:
        return None
    for axis in axes_of(node):
        n, reader = length_of(node, axis), RowReader(node, axis)
        if n is None or n <= OVERHEAD:
            continue
        # First without the others, which takes longer to find out.
        if cheaper_order(scattered_by({reader: indices_of(reader, n)})) is None:
            continue
        found = readers_with(fgraph, reader, n)
        scattered = scattered_by(found)
        if (rows := best_order(scattered)) is None:
            continue
        if refusal := why_not(fgraph, found):
            decisions.refused(NAME, out, refusal)
            continue
        return _permuted([*found], rows, sorted_by(scattered, rows))
    return None


def _permuted(readers: list[RowReader], rows: np.ndarray, by: str) -> Replacements | None:
    """Return what stands for each reduction, those that depend on others first."""
    chosen = ChosenRows(rows.shape, len(rows))
    order = toposort([reader.node.outputs[0] for reader in readers])
    position = {node: k for k, node in enumerate(order)}
    # What is put in a place is built of what the graph still is, so that comes after it.
    last_first = sorted(readers, key=lambda reader: position[reader.node], reverse=True)
    result = {reader.node.outputs[0]: _at(chosen, reader, rows) for reader in last_first}
    if not all(old.type.is_super(new.type) for old, new in result.items()):
        return None
    for old, new in result.items():
        copy_stack_trace(old, new)
        decisions.fired(NAME, old, by=by)
    return result


def _at(chosen: ChosenRows, reader: RowReader, rows: np.ndarray) -> TensorVariable:
    """Return a reduction over permuted rows."""
    node, where = reader.node, {reader.axis: rows}
    [x] = node.inputs
    return reduce_rows(Reduction(node, x, [], axes_of(node)), where, chosen.at(x, where), len(rows))
