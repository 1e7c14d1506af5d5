"""``SiteNode``: the loops of its inner graph in its place.

PyTensor never looks into such a node, whose graph is as it should be compiled. So its nodes are met for the first time here, many of them, which do one operation
each. A loop for each would take longer to join than the rest of the compilation: what only other operations read is part of these.
"""

from dataclasses import replace

from pytensor.graph.basic import Apply

from pymc_fastlogp.kernel.lower.array import Array
from pymc_fastlogp.kernel.lower.context import Context


def lower(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append the loops of the inner graph, and return its outputs."""
    inner = context.inside(node.op.fgraph.clients, None)
    inner.delays = True
    # Who else reads an array, inside and outside, only the other graph knows: none may be written to.
    given = [replace(array, buffer=None) for array in inputs]
    results = context.lower_graph(inner, node.op.fgraph, given)
    context.steps += inner.steps
    return [replace(array, buffer=None) for array in results]
