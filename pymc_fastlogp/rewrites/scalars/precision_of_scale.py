r"""``sigma ** -2 * sign(sigma) -> tau`` for ``sigma = abs(tau) ** -0.5 * sign(tau)``: a precision that went through a scale.

PyMC turns the precision of a Student t into a scale when the variable is made, and the scale back into a precision in its log density.
For every :math:`\tau \ne 0`

.. math::

    \bigl(|\tau|^{-1/2} \operatorname{sgn} \tau\bigr)^{-2} \operatorname{sgn}\bigl(|\tau|^{-1/2} \operatorname{sgn} \tau\bigr) = \tau ,

with the gradient 1. The left side has two powers, two signs and two divisions, and its gradient as many again. Where the precision is
a row's own, as in stochastic volatility, these are most of the work; and ``log(exp(x) / nu)`` is then a product whose logarithm is known
(:mod:`~pymc_fastlogp.rewrites.scalars.log_of_product`).

At 0 and at infinity the left side is nan, and so fails PyMC's check that the precision is positive. The right side fails it at 0, too; at infinity the log density is
nan where it was minus infinity: neither is accepted by a sampler. A denormal precision, whose scale overflows when it is squared, keeps its value.
"""

import pytensor.scalar as ps
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.math import mul
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.elemwise import operand, operands, raised_to
from pymc_fastlogp.analysis.ranges import is_nonnegative


@node_rewriter([mul])
def local_precision_of_scale(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``sigma ** -2 * sign(sigma) -> tau``, whatever else it is multiplied with."""
    [out] = node.outputs
    # The gradient of a narrower float would be rounded on its way through the scale.
    if out.type.dtype != config.floatX:
        return None
    for factor in node.inputs:
        sigma = raised_to(factor, -2)
        signs = [x for x in node.inputs if sigma is not None and operand(x, ps.Sign) is sigma]
        tau = None if not signs else _precision_of(sigma)
        if tau is None or tau.type.dtype != out.type.dtype:
            continue
        others = [*node.inputs]
        # One of each: another factor may be the same.
        others.remove(factor)
        others.remove(signs[0])
        product = mul(tau, *others) if others else tau
        copy_stack_trace(out, product)
        return [product] if out.type.is_super(product.type) else None
    return None


def _precision_of(sigma: TensorVariable) -> TensorVariable | None:
    """Return ``tau`` if ``sigma`` is ``abs(tau) ** -0.5 * sign(tau)``, else None."""
    factors = operands(sigma, ps.Mul)
    if len(factors) != 2:
        return None
    for power, sign in (factors, factors[::-1]):
        tau, base = operand(sign, ps.Sign), raised_to(power, -0.5)
        if tau is None or base is None:
            continue
        # PyTensor takes no absolute value of what is not negative.
        if operand(base, ps.Abs) is tau or (base is tau and is_nonnegative(tau)):
            return tau
    return None
