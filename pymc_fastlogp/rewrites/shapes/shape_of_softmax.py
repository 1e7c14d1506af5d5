"""Read the shape of a softmax from its input.

.. code::

    Shape(softmax(x))  ->  Shape(x)

The type of PyTensor's ``Softmax`` has no static shape. A categorical likelihood indexes each row by an ``arange`` of this
shape, which is constant only if the shape is read from ``x``.

When it applies
---------------
To the shape of a softmax or of a log-softmax.
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
