"""Write a square root as one, before the gradient.

.. code::

    x ** 0.5  ->  sqrt(x)

``pt.linalg.norm`` writes the power. PyTensor replaces it as well, but in ``specialize``, after the
gradient. Before it, ``log(sqrt(x))`` becomes ``log(x) / 2``, and its gradient ``1 / (2 * x)``, without any root.
"""

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.math import pow as pt_pow
from pytensor.tensor.math import sqrt
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value


@node_rewriter([pt_pow])
def local_pow_to_sqrt(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``x ** 0.5 -> sqrt(x)``."""
    [x, exponent], [out] = node.inputs, node.outputs
    if x.type != out.type or x.type.dtype not in float_dtypes or fill_value(exponent) != 0.5:
        return None
    root = sqrt(x)
    copy_stack_trace(out, root)
    return [root]
