r"""Sort the rows of a likelihood by the index whose gradient gains most.

.. code::

    sum(f(theta[g], x))     ->  sum(f(theta[g[p]], x[p]))      g, x constants, p a permutation

A sum, or an ``all``, does not depend on the order of its rows:

.. math::

    \sum_i f(\theta_{g_i}, x_i) = \sum_i f(\theta_{g_{p_i}}, x_{p_i}).

Permuting constants, and entries of tables at constant indices, costs nothing at run time. The gradient adds up the rows
of each group. If these rows are adjacent, a kernel accumulates them in registers and updates memory once per group. An
index that reads each entry once becomes the order of the rows: ``exp(theta[p] * x).sum()`` is
``exp(theta * x[q]).sum()`` with the inverse ``q`` of ``p``, so the gather and its scatter vanish. Both sides differ by
the rounding of the sum.

:mod:`~pymc_fastlogp.rewrites.rows.order.scatter_order` chooses the order from measured costs of scatters.
:mod:`~pymc_fastlogp.rewrites.rows.order.readers` finds all reductions that read the same rows. They are permuted
together, so that loops over these rows can still be fused. The rule works before the gradient, where only sums have to
be permuted; the gradient follows.

When it applies
---------------
- A ``Sum`` of floats along an axis of more than 32 rows, which read only constants and entries of tables at constant
  indices. The rows may be cells of :mod:`~pymc_fastlogp.rewrites.rows.compact.compact_rows`.
- Another order saves at least 0.1 ns per row in the scatters: groups pay from about 20 rows each. Rows in the best
  order stay.

When it refuses
---------------
Refusals are logged if another order would pay:

- A reader of the rows that is neither a sum nor an ``all`` along them: an output per row, a maximum, a sum by group.
- Rows that read other rows, as differences of neighbors do, or a variable with the rows along two axes.
- Rows that each read a different entry of a variable: a latent variable, a cumulative sum, shared data, random numbers.
  Permuting such an entry would cost a gather, and a scatter in the gradient.
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
    scatter_indices,
    why_fixed,
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
        # The index of this reduction alone, because finding the other reductions takes longer.
        if cheaper_order(scatter_indices({reader: indices_of(reader, n)})) is None:
            continue
        found = readers_with(fgraph, reader, n)
        scattered = scatter_indices(found)
        if (rows := best_order(scattered)) is None:
            continue
        if refusal := why_fixed(fgraph, found):
            decisions.refused(NAME, out, refusal)
            continue
        return _permuted([*found], rows, sorted_by(scattered, rows))
    return None


def _permuted(readers: list[RowReader], rows: np.ndarray, by: str) -> Replacements | None:
    """Return a replacement of each reduction, dependent reductions first."""
    chosen = ChosenRows(rows.shape, len(rows))
    order = toposort([reader.node.outputs[0] for reader in readers])
    position = {node: k for k, node in enumerate(order)}
    # A replacement reads variables of the current graph, so that the last reductions are replaced first.
    last_first = sorted(readers, key=lambda reader: position[reader.node], reverse=True)
    result = {
        reader.node.outputs[0]: _reduction_at_rows(chosen, reader, rows) for reader in last_first
    }
    if not all(old.type.is_super(new.type) for old, new in result.items()):
        return None
    for old, new in result.items():
        copy_stack_trace(old, new)
        decisions.fired(NAME, old, by=by)
    return result


def _reduction_at_rows(chosen: ChosenRows, reader: RowReader, rows: np.ndarray) -> TensorVariable:
    """Return a reduction over permuted rows."""
    node, where = reader.node, {reader.axis: rows}
    [x] = node.inputs
    return reduce_rows(Reduction(node, x, [], axes_of(node)), where, chosen.at(x, where), len(rows))
