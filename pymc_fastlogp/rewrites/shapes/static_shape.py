"""Replace the shape of a variable whose type knows it by a constant.

.. code::

    Shape(x)           ->  [n, m]        x.type.shape == (n, m)
    Shape(softmax(x))  ->  Shape(x)

PyTensor's ``ShapeOpt`` does so when a function is compiled, but it is not among the rewrites that
run on a log density before its gradient. Without it masks made by ``tril`` and ``triu``, which ask
a matrix for its shape, are still expressions there, and nothing can look at what they contain.
The same holds for the ``arange`` with which a categorical likelihood takes an entry of each row:
it asks a softmax, whose type does not know its shape.
"""

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import constant
from pytensor.tensor.shape import Shape, shape
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable


@node_rewriter([Shape])
def local_static_shape(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Replace ``Shape(x)`` by a constant where the type of ``x`` has all of it."""
    [x] = node.inputs
    if not isinstance(x.type, TensorType) or None in x.type.shape:
        return None
    return [constant(np.array(x.type.shape, dtype="int64"))]


@node_rewriter([Shape])
def local_shape_of_softmax(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``Shape(softmax(x)) -> Shape(x)``."""
    [x] = node.inputs
    if not isinstance(x.owner_op, Softmax | LogSoftmax):
        return None
    return [shape(x.owner.inputs[0])]
