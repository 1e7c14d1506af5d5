"""``SiteNode{f}(x) -> f(x)``: inline what ``parametrise`` computes for the sites of effects, when all other rewrites are done.

.. code::

    SiteNode{f}(x) -> f(x)

The graphs of sites, and of their derivatives, are written as they should be compiled. While they are one node, no pass of PyTensor looks at each of
their nodes, which is what takes most of the time to compile a model.

Nothing changes but what is compiled together. A node is left alone where no kernel covers its graph, as any ``OpFromGraph``.
"""

from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter

from pymc_fastlogp.ops import SiteNode
from pymc_fastlogp.rewrites.compiled.inline_op_from_graph import is_covered


@node_rewriter([SiteNode])
def local_inline_sites(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Rewrite ``SiteNode{f}(x) -> f(x)`` where kernels cover all of ``f``."""
    return inline_ofg_node(node) if is_covered(node) else None
