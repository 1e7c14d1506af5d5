r"""Use a precision directly instead of the scale that was computed from it.

.. code::

    sigma ** -2 * sign(sigma)  ->  tau        sigma = abs(tau) ** -0.5 * sign(tau)

``pm.StudentT(lam=tau)`` converts its precision into a scale, and its log density converts the scale back. For
:math:`\tau \ne 0`

.. math::

    \bigl(|\tau|^{-1/2} \operatorname{sgn} \tau\bigr)^{-2} \operatorname{sgn}\bigl(|\tau|^{-1/2} \operatorname{sgn} \tau\bigr) = \tau ,

with gradient 1. The left side has two powers, two signs and two divisions, and its gradient as many again. With one precision
per row, as in stochastic volatility, they are most of the work. Afterwards ``log(exp(x) / nu)`` is covered by
:mod:`~pymc_fastlogp.rewrites.scalars.log_of_product`.

The right side is exact. At :math:`\tau = 0` both sides fail PyMC's check that the precision is positive. At infinity the log
density is NaN instead of minus infinity. A subnormal precision, whose squared scale overflows, keeps its value.

When it applies
---------------
To a product that contains the power and the sign, among other factors. The absolute value may be missing if ``tau`` is known to
be nonnegative.

When it refuses
---------------
Other powers, a scale with another factor, integers, and floats other than ``floatX``, whose gradient is rounded by the scale.
"""

import pytensor.scalar as ps
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.math import mul
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.elemwise import operand, operands, raised_to
from pymc_fastlogp.analysis.ranges import is_nonnegative
from pymc_fastlogp.rewrites.replacement import replacement


@node_rewriter([mul])
def local_precision_of_scale(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``sigma ** -2 * sign(sigma) -> tau`` among other factors."""
    [out] = node.outputs
    # The gradient of a narrower float would be rounded by the scale.
    if out.type.dtype != config.floatX:
        return None
    for factor in node.inputs:
        sigma = raised_to(factor, -2)
        signs = [x for x in node.inputs if sigma is not None and operand(x, ps.Sign) is sigma]
        tau = None if not signs else _precision_of(sigma)
        if tau is None or tau.type.dtype != out.type.dtype:
            continue
        others = [*node.inputs]
        # Only once each: equal factors may remain.
        others.remove(factor)
        others.remove(signs[0])
        return replacement(out, mul(tau, *others) if others else tau)
    return None


def _precision_of(sigma: TensorVariable) -> TensorVariable | None:
    """Return ``tau`` if ``sigma`` is ``abs(tau) ** -0.5 * sign(tau)``."""
    factors = operands(sigma, ps.Mul)
    if len(factors) != 2:
        return None
    for power, sign in (factors, factors[::-1]):
        tau, base = operand(sign, ps.Sign), raised_to(power, -0.5)
        if tau is None or base is None:
            continue
        # PyTensor drops the absolute value of a nonnegative variable.
        if operand(base, ps.Abs) is tau or (base is tau and is_nonnegative(tau)):
            return tau
    return None
