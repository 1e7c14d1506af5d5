r"""``softplus(x) - softplus(-x) -> x``, in each spelling of the signs.

From :math:`\log(1 + e^x) - \log(1 + e^{-x}) = x`. With :math:`p = \mathrm{sigmoid}(x)` it is :math:`\log p - \log(1 - p)`,
which PyMC's negative binomial writes to compute its mean from ``p``. The right side is exact, where the left rounds
both logarithms, and the two agree at zero, infinity and nan. Neither it nor its gradient needs a transcendental function.
"""

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.scalar.math import Softplus
from pytensor.tensor.math import add, sub
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.elemwise import negated, operand


@node_rewriter([add, sub])
def local_difference_of_softplus(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite two terms of opposite signs, one of ``x`` and the other of ``-x``."""
    if len(node.inputs) != 2:
        return None
    [out], found = node.outputs, []
    for term in node.inputs:
        if (argument := _signed_argument(term)) is None:
            return None
        found.append(argument)
    (x, x_is_negative), (y, y_is_negative) = found
    if x_is_negative == (y_is_negative != (node.op == sub)):
        return None
    if negated(x) is not y and negated(y) is not x:
        return None
    result = y if x_is_negative else x
    if not out.type.is_super(result.type):
        return None
    copy_stack_trace(out, result)
    return [result]


def _signed_argument(term: TensorVariable) -> tuple[TensorVariable, bool] | None:
    """Return ``x`` and whether a term is ``-softplus(x)``; None if it is neither that nor ``softplus(x)``."""
    if (x := operand(term, Softplus)) is not None:
        return x, False
    if (positive := negated(term)) is None or (x := operand(positive, Softplus)) is None:
        return None
    return x, True
