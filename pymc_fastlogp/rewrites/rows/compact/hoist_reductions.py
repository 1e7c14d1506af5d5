"""Reduce the entries of a row once for each distinct row, and look the results up.

.. code::

    logsumexp(z * b, axis=1)  ->  logsumexp(z_u * b, axis=1)[i]     z constant, u its distinct rows, i their numbers
    dot(x, b)                 ->  dot(x_u, b)[i]

This is :mod:`~pymc_fastlogp.rewrites.rows.compact.hoist_distinct` for rows of many entries, beside which looking a result up, a load and an
addition in memory for the gradient, is little. It goes before rows are compacted: what a likelihood sums, or else each of several, reads
other columns, too, and has at least as many cells as the reduction has distinct rows.
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

# A row has to have so many entries. Products of rows of eight take as long as before, those of sixteen half as long or less.
LONG = 8


@node_rewriter([LogSumExp, Sum, Max, Min, Prod, Dot])
def local_hoist_reductions(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``reduce(rows) -> reduce(distinct rows)[number of each row]``."""
    return hoisted(fgraph, node.outputs[0], NAME) if _n_entries(node) >= LONG else None


def _n_entries(node: Apply) -> int:
    """Return of how many entries one is made, 0 if that is not known."""
    lengths = node.inputs[0].type.shape
    if isinstance(node.op, Dot):
        return lengths[-1] or 0
    # PyTensor sums numbers over an axis that they lost on the way, so not every axis is there.
    return prod(lengths[axis] or 0 for axis in axes_of(node) if axis < len(lengths))
