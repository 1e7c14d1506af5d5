r"""Replace the difference of the softplus functions of ``x`` and ``-x`` by ``x``.

.. code::

    softplus(x) - softplus(-x)  ->  x

.. math:: \log(1 + e^x) - \log(1 + e^{-x}) = x

With :math:`p = \mathrm{sigmoid}(x)` this is :math:`\log p - \log(1 - p)`. PyMC's negative binomial computes its mean
``alpha * (1 - p) / p`` from these logarithms. The right side is exact, also at zero, infinity and NaN, and needs no
transcendental function in the value or the gradient.

When it applies
---------------
To two terms of a sum or difference, in each spelling of the signs.

When it refuses
---------------
Arguments that are not ``x`` and ``-x``, broadcast operands, more than two terms.
"""

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scalar.math import Softplus
from pytensor.tensor.math import add, sub
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.elemwise import negated, operand
from pymc_fastlogp.rewrites.replacement import replacement


@node_rewriter([add, sub])
def local_difference_of_softplus(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``softplus(x) - softplus(-x) -> x``."""
    if len(node.inputs) != 2:
        return None
    [out], arguments = node.outputs, []
    for term in node.inputs:
        if (argument := _signed_argument(term)) is None:
            return None
        arguments.append(argument)
    (x, x_is_negative), (y, y_is_negative) = arguments
    if x_is_negative == (y_is_negative != (node.op == sub)):
        return None
    if negated(x) is not y and negated(y) is not x:
        return None
    return replacement(out, y if x_is_negative else x)


def _signed_argument(term: TensorVariable) -> tuple[TensorVariable, bool] | None:
    """Return ``x`` and whether a term is ``-softplus(x)`` instead of ``softplus(x)``; None for other terms."""
    if (x := operand(term, Softplus)) is not None:
        return x, False
    if (positive := negated(term)) is None or (x := operand(positive, Softplus)) is None:
        return None
    return x, True
