"""Ask for the shape of what a softmax is taken of.

.. code::

    Shape(softmax(x))  ->  Shape(x)

The type of a softmax does not know its shape. A categorical likelihood takes an entry of each of its rows by an ``arange`` of that
shape, which is no constant until it is asked of ``x``.
"""

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.shape import Shape, shape
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.variable import TensorVariable


@node_rewriter([Shape])
def local_shape_of_softmax(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``Shape(softmax(x)) -> Shape(x)``."""
    [x] = node.inputs
    if not isinstance(x.owner_op, Softmax | LogSoftmax):
        return None
    return [shape(x.owner.inputs[0])]
