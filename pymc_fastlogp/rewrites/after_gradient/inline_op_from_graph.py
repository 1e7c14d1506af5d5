"""Inline an ``OpFromGraph`` whose nodes kernels cover.

.. code::

    OpFromGraph{f}(x)   ->  f(x)
    KroneckerProduct(x) ->  its product and reshape

PyTensor compiles an ``OpFromGraph`` as a separate node, which divides kernels. PyTensor inlines the Ops that it knows by
name, such as ``AllocDiag``, but the gradient of such an Op is an anonymous ``OpFromGraph``. A covariance matrix with
``pt.diag`` in it, as in a marginal Gaussian process, has one in its gradient. The inner graph defines the Op, so values do not
change.

When it applies
---------------
After the gradient, in mode NUMBA, to an ``OpFromGraph``, also of a user, or a ``KroneckerProduct``, if kernels cover every node
of the inner graph.

When it refuses
---------------
Other subclasses of ``OpFromGraph``, which PyTensor's own rules match or compile in their own way.
"""

from pytensor.compile.builders import OpFromGraph
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor import symbolic
from pytensor.tensor.linalg.products import KroneckerProduct

from pymc_fastlogp.lazy_import import try_import_attribute

# Gradients of symbolic Ops such as LogSumExp. Before PyTensor 3.3.8 they were anonymous OpFromGraphs.
DERIVATIVE = getattr(symbolic, "FusibleSymbolicOpDerivative", OpFromGraph)
# PyTensor's own rules match other subclasses, or compile them in their own way.
INLINED = (OpFromGraph, DERIVATIVE, KroneckerProduct)


@node_rewriter([OpFromGraph])
def local_inline_op_from_graph(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Rewrite ``OpFromGraph{f}(x) -> f(x)`` where kernels cover all of ``f``."""
    if type(node.op) not in INLINED:
        return None
    return inline_ofg_node(node) if is_covered(node) else None


def is_covered(node: Apply) -> bool:
    """Return whether kernels cover a node, or all nodes of its inner graph."""
    if type(node.op) in INLINED:
        return all(map(is_covered, node.op.fgraph.toposort()))
    is_supported = try_import_attribute("pymc_fastlogp.kernel.lower.is_supported")
    return is_supported is not None and is_supported(node)
