r"""Write the logarithm of a rising factorial in terms that do not cancel.

.. code::

    gammaln(a[g] + k) - gammaln(a[g])  ->  (log(a) - J(a + 1))[g] + R(a[g], k, log1p(a)[g]) + 1 - k

``k`` is constant and ``a`` nonnegative. The two terms have opposite signs and stand anywhere in a sum. Where ``k`` is zero, the
right side is evaluated for ``k = 1`` and multiplied by zero. Negative binomial, beta-binomial and Dirichlet-multinomial have a
count for ``k``, Student's t has 1/2.

For large :math:`a` both terms are about :math:`a \log a`, and their difference is about :math:`k \log a`. From
:math:`a = 10^{16}` on, no digit of the difference is left. Row compaction, which sums each term separately, loses more. With
Stirling's formula :math:`\log\Gamma(x) = (x - 1/2) \log x - x + \tfrac12 \log 2\pi + J(x)`,
:math:`\Gamma(a + 1) = a \, \Gamma(a)`, :math:`b = a + 1` and :math:`m = k - 1`,

.. math::

    \log\Gamma(a + k) - \log\Gamma(a) &= \log a + \log\Gamma(b + m) - \log\Gamma(b) \\
    &= \log a - m - J(b) + R, \qquad R = m \log b + (b + m - \tfrac12) \log(1 + m/b) + J(b + m)

No term is much larger than the whole. For :math:`m < b` the two terms of :math:`R` are about :math:`m \log b` and :math:`m`.
For :math:`m > b` they add up to about :math:`m \log m`, like the whole. The step from :math:`a` to :math:`a + 1` avoids
cancellation of :math:`k \log a` and :math:`J(a)` for small :math:`a`. So each term may be summed over rows by itself.

Only :math:`R` depends on :math:`a` and :math:`k` together. :math:`\log b` is shared, so a row keeps one logarithm,
as ``gammaln`` has. The derivative :math:`\psi(a + k) - \psi(a)` does not cancel either
(:mod:`~pymc_fastlogp.rewrites.loggamma.binet`). Because ``log1p`` is slower than ``log``, a likelihood of mostly distinct rows
takes up to 40 % longer.

Tests bound the error of values and gradients by four times PyTensor's. Two limits differ: where ``a = exp(x)`` underflows,
``log(a)`` is ``x`` instead of :math:`-\infty`, and where ``gammaln(a)`` overflows, from :math:`a = 10^{305}` on, PyTensor is
NaN.

When it applies
---------------
Before the gradient and before rows are compacted, in float64. Each ``k`` is zero or at least 1/2, where the rational
approximations of :math:`J` begin. ``a`` is a scalar, or has at most half as many distinct entries as there are rows.

When it refuses
---------------
- One ``a`` per row: its terms are not summed separately, and a row would have three logarithms instead of two.
- ``a`` that may be negative, as an unbounded parameter or a quotient whose divisor may be zero.
- ``k`` that is not constant, negative, or between 0 and 1/2; unknown lengths; single precision. See
  :mod:`~pymc_fastlogp.rewrites.loggamma.gamma_difference`.
"""

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import constant
from pytensor.tensor.math import add, gammaln, log, log1p, softplus, sub
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.elemwise import operand
from pymc_fastlogp.analysis.ranges import is_nonnegative
from pymc_fastlogp.rewrites.loggamma.binet import binet, rising
from pymc_fastlogp.rewrites.loggamma.gamma_pairs import (
    Pair,
    as_gathered,
    of_entries,
    with_pairs_replaced,
)

DTYPE = "float64"
# Smallest nonzero `k`: the rational approximation of J(a + k) begins here.
LEAST = 0.5


@node_rewriter([gammaln])
def local_rising_factorial(fgraph: FunctionGraph, node: Apply) -> dict[Variable, Variable] | None:
    """Rewrite ``gammaln(a + k) - gammaln(a)`` within a sum."""
    return with_pairs_replaced(fgraph, node, _accepts, _log_rising)


def _accepts(pair: Pair, out: TensorVariable) -> bool:
    return out.type.dtype == DTYPE and is_rising(pair)


def is_rising(pair: Pair) -> bool:
    """Return whether each ``k`` is a constant that is zero or at least 1/2, and ``a`` is nonnegative."""
    k = pair.k.constant
    if pair.k.multiples or pair.a.type.dtype != DTYPE:
        return False
    in_range = np.isfinite(k) & ((k == 0) | (k >= LEAST))
    return bool(k.any() and in_range.all()) and is_nonnegative(pair.a)


def _log_rising(pair: Pair) -> TensorVariable:
    """Return the logarithm of the rising factorial of a pair."""
    a, k = as_gathered(pair.a), pair.k.constant
    is_step = k > 0
    safe = np.where(is_step, k, 1.0)
    logarithm = of_entries(_log, a)
    if (safe != 1).any():
        of_a = of_entries(_log_minus_binet, a)
        whole = rising(a, constant(safe), of_entries(_log1p, a))
        logarithm = add(of_a, whole, constant(1 - safe))
    if not is_step.all():
        # Not a switch: the product is faster, and the gradient of a switch is another switch.
        logarithm = constant(is_step.astype(DTYPE)) * logarithm
    return logarithm


def _log(x: TensorVariable) -> TensorVariable:
    exponent = operand(x, ps.Exp)
    return log(x) if exponent is None else exponent


def _log1p(x: TensorVariable) -> TensorVariable:
    exponent = operand(x, ps.Exp)
    return log1p(x) if exponent is None else softplus(exponent)


def _log_minus_binet(x: TensorVariable) -> TensorVariable:
    return sub(_log(x), binet(add(x, constant(np.ones((1,) * x.type.ndim)))))
