r"""Subtract normal probabilities of the tail next to them, so that an interval above the mean keeps its digits.

.. code::

    log(k * erf(v) - k * erf(u))    ->  log(s * (k * erfc(s * u) - k * erfc(s * v)))
    log(k * erfc(u) - k * erfc(v))  ->  log(s * (k * erfc(s * u) - k * erfc(s * v)))

with :math:`s = 1` if :math:`u + v \ge 0`, else :math:`s = -1`. The log probability of an interval of a normal distribution,
written by hand as :math:`\log(\Phi(b) - \Phi(a))`, has these forms. The right side follows from

.. math::

    \mathrm{erf}(v) - \mathrm{erf}(u) = \mathrm{erfc}(u) - \mathrm{erfc}(v) = \mathrm{erfc}(-v) - \mathrm{erfc}(-u).

In one tail the left side subtracts two numbers next to one, for ``erf`` in both tails. Eight standard deviations from the mean no
digit is left. The right side subtracts the probabilities of the nearer tail. The relative error of their difference is at most the error of
``erfc`` divided by :math:`1 - \mathrm{erfc}(v) / \mathrm{erfc}(u)` for :math:`0 \le u < v`. Beyond 37 standard deviations both probabilities
underflow, as on the left side.

Where the left side is rounded to zero, its logarithm is :math:`-\infty`. The right side is finite.

When it applies
---------------
Before the gradient, to real numbers, with ``k`` a positive constant, or one.

When it refuses
---------------
Other combinations of error functions, factors that differ, and probabilities whose logarithm is not taken.
"""

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scalar.math import Erf, Erfc
from pytensor.tensor.basic import constant, switch
from pytensor.tensor.math import erfc, ge, log, sub
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import operand, operands
from pymc_fastlogp.rewrites.replacement import replacement


@node_rewriter([log])
def local_log_of_normal_interval(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``log(k * erf(v) - k * erf(u)) -> log(s * (k * erfc(s * u) - k * erfc(s * v)))``, and the same of ``erfc``."""
    [x], [out] = node.inputs, node.outputs
    sides = [_split_factor(side) for side in operands(x, ps.Sub)]
    if not sides or x.type.dtype != out.type.dtype or x.type.dtype not in float_dtypes:
        return None
    [(k, first), (other_k, second)] = sides
    if k != other_k or not 0 < k < np.inf:
        return None
    for function, (upper, lower) in ((Erf, (first, second)), (Erfc, (second, first))):
        v, u = operand(upper, function), operand(lower, function)
        if v is not None and u is not None:
            one, factor = (constant(np.array(number, dtype=x.type.dtype)) for number in (1, k))
            s = switch(ge(u + v, 0), one, -one)
            tails = [erfc(s * end) if k == 1 else factor * erfc(s * end) for end in (u, v)]
            return replacement(out, log(s * sub(*tails)))
    return None


def _split_factor(x: TensorVariable) -> tuple[float, TensorVariable]:
    """Return a constant factor and the other factor of a product, 1 and ``x`` if there is none."""
    match operands(x, ps.Mul):
        case [k, other] if (number := fill_value(k)) is not None:
            return float(number), other
    return 1.0, x
