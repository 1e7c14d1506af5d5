r"""Take the log odds for what they are, before the gradient.

.. code::

    softplus(x) - softplus(-x)  ->  x       and -softplus(-x) - -softplus(x), the sum with a sign

From :math:`\log(1 + e^x) - \log(1 + e^{-x}) = x`. With :math:`p = \mathrm{sigmoid}(x)` it is
:math:`\log p - \log(1 - p)`, which PyMC's negative binomial writes to compute its mean from ``p``. The
right side is exact, where the left rounds both logarithms, and the two agree at
zero, infinity and nan. Neither it nor its gradient needs a transcendental function.
"""

from typing import NamedTuple

import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import add, sub
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value


class SignedSoftplus(NamedTuple):
    """``sign * softplus(x)``."""

    sign: int
    x: TensorVariable


@node_rewriter([add, sub])
def local_difference_of_softplus(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``softplus(x) - softplus(-x) -> x``."""
    if len(node.inputs) != 2:
        return None
    a, b = map(_signed_softplus, node.inputs)
    if a is None or b is None:
        return None
    if isinstance(node.op.scalar_op, ps.Sub):
        b = b._replace(sign=-b.sign)
    if a.sign == b.sign or not _are_opposite(a.x, b.x):
        return None
    difference = a.x if a.sign > 0 else b.x
    if difference.type != node.outputs[0].type:
        return None
    copy_stack_trace(node.outputs[0], difference)
    return [difference]


def _signed_softplus(x: TensorVariable) -> SignedSoftplus | None:
    inside = _minus(x)
    softplus = x if inside is None else inside
    if not _is(softplus, ps.Softplus):
        return None
    return SignedSoftplus(1 if inside is None else -1, softplus.owner.inputs[0])


def _are_opposite(x: TensorVariable, y: TensorVariable) -> bool:
    return _minus(x) is y or _minus(y) is x


def _minus(x: TensorVariable) -> TensorVariable | None:
    """Return what ``x`` is the negative of, None of anything else."""
    if _is(x, ps.Neg):
        return x.owner.inputs[0]
    if _is(x, ps.Mul) and len(x.owner.inputs) == 2 and fill_value(x.owner.inputs[0]) == -1:
        return x.owner.inputs[1]
    return None


def _is(x: TensorVariable, scalar_op: type[ps.ScalarOp]) -> bool:
    return isinstance(x.owner_op, Elemwise) and isinstance(x.owner.op.scalar_op, scalar_op)
