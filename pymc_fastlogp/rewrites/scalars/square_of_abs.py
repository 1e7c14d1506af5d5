"""Square a number instead of its absolute value.

.. code::

    abs(x) ** 2  ->  x ** 2       and sqr(abs(x)), for real x

``pt.linalg.norm`` writes it. The gradient of ``abs(x) ** 2`` is ``2 * abs(x) * sign(x)``, two passes more
than ``2 * x``, which it equals for every ``x``, zero, infinity and nan included.
"""

import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import pow as pt_pow
from pytensor.tensor.math import sqr
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value


@node_rewriter([sqr, pt_pow])
def local_square_of_abs(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``abs(x) ** 2 -> x ** 2`` and ``sqr(abs(x)) -> sqr(x)``."""
    base, *exponent = node.inputs
    if not isinstance(base.owner_op, Elemwise) or not isinstance(base.owner.op.scalar_op, ps.Abs):
        return None
    [x] = base.owner.inputs
    if x.type.dtype not in float_dtypes or (exponent and fill_value(exponent[0]) != 2):
        return None
    square = node.op(x, *exponent)
    copy_stack_trace(node.outputs[0], square)
    return [square]
