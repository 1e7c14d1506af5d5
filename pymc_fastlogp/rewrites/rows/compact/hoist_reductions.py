"""Reduce the entries of each distinct row once, and gather the results.

.. code::

    logsumexp(z * b, axis=1)  ->  logsumexp(z_u * b, axis=1)[i]     z constant, u its distinct rows, i their numbers
    dot(x, b)                 ->  dot(x_u, b)[i]

The gather costs a load, and an addition in memory in the gradient. Both are small compared with a reduction of many entries.
The rule runs before row compaction. A likelihood reads further columns, so it has at least as many cells as the
reduction has distinct rows. Several likelihoods may share one reduction.

Values and gradient differ by the rounding of sums, because BLAS may add the entries of fewer rows in another order.

When it applies
---------------
- ``LogSumExp``, ``Sum``, ``Max``, ``Min`` or ``Prod`` of at least eight entries, or a product with at least eight
  columns.
- The rows read constants, parameters at constant indices, and values that all rows share.
- The distinct rows, along one axis or all, are fewer than 0.7 of the rows, and more than 32 reductions are saved.

When it refuses
---------------
Short rows, rows that hardly repeat, variables with one value per row, data that are not frozen, an unknown number of
rows, integers.
"""

from math import prod

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.math import Dot, Max, Min, Prod, Sum
from pytensor.tensor.special import LogSumExp
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.rewrites.rows.compact.hoist_distinct import hoisted
from pymc_fastlogp.rewrites.rows.compact.reductions import axes_of

NAME = "fastlogp_hoist_reductions"

# Minimum entries per row. A product of eight entries costs as much as a gather.
LONG = 8


@node_rewriter([LogSumExp, Sum, Max, Min, Prod, Dot])
def local_hoist_reductions(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``reduce(rows) -> reduce(distinct rows)[number of each row]``."""
    return hoisted(fgraph, node.outputs[0], NAME) if _n_entries(node) >= LONG else None


def _n_entries(node: Apply) -> int:
    """Return the number of reduced entries per output entry, 0 if unknown."""
    lengths = node.inputs[0].type.shape
    if isinstance(node.op, Dot):
        return lengths[-1] or 0
    # PyTensor may sum over an axis that its input no longer has.
    return prod(lengths[axis] or 0 for axis in axes_of(node) if axis < len(lengths))
