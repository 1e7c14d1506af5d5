"""``OpFromGraph{f}(x) -> f(x)``: inline the graph of a node, where a kernel can take it.

.. code::

    OpFromGraph{f}(x)   ->  f(x)
    KroneckerProduct(x) ->  its product and reshape

PyTensor keeps an ``OpFromGraph`` as one node, which it compiles on its own, and which no kernel looks into: what comes
before it and what needs it become two kernels. It inlines those that it names, such as ``AllocDiag``, but the gradient
of one is again an ``OpFromGraph``, without a name. A covariance matrix with ``pt.diag`` in it, as that of a
marginal Gaussian process, has one in its gradient.

The graph is the definition of the Op, so nothing changes but what is compiled together. It is left alone if it has a
node that no kernel covers, since compiling it once for several uses may then be worth something.
"""

from pytensor.compile.builders import OpFromGraph
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor import symbolic
from pytensor.tensor.linalg.products import KroneckerProduct

from pymc_fastlogp.lazy_import import imported_late

# The gradient of LogSumExp and its like; before PyTensor 3.3.8 it was an OpFromGraph without a name.
DERIVATIVE = getattr(symbolic, "FusibleSymbolicOpDerivative", OpFromGraph)
# Not the other kinds, which PyTensor's own rules look for or which it compiles in a way of their own.
INLINED = (OpFromGraph, DERIVATIVE, KroneckerProduct)


@node_rewriter([OpFromGraph])
def local_inline_op_from_graph(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Rewrite ``OpFromGraph{f}(x) -> f(x)`` where kernels cover all of ``f``."""
    if type(node.op) not in INLINED:
        return None
    return inline_ofg_node(node) if is_covered(node) else None


def is_covered(node: Apply) -> bool:
    """Return whether kernels take a node, or else all nodes of its graph."""
    if type(node.op) in INLINED:
        return all(map(is_covered, node.op.fgraph.toposort()))
    is_supported = imported_late("pymc_fastlogp.kernel.lower.is_supported")
    return is_supported is not None and is_supported(node)
