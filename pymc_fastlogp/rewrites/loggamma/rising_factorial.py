r"""``gammaln(a + k) - gammaln(a)``: the logarithm of a rising factorial, in terms that keep their digits.

.. code::

    gammaln(a[g] + k) - gammaln(a[g])  ->  (log(a) - J(a + 1))[g] + R(a[g], k, log1p(a)[g]) + 1 - k

``k`` is constant, and ``a`` not negative; where some ``k`` are zero, the right side is that for 1, times zero there. The two terms of the left stand anywhere in a sum, with opposite signs. Negative binomial, beta-binomial and
Dirichlet-multinomial have ``k`` for a count, Student's t has 1/2.

For large :math:`a` both terms are about :math:`a \log a`, and their difference about :math:`k \log a`: it is made of
the digits of :math:`a \log a` behind the 16th, of none from :math:`a = 10^{16}` on. Rows that are
:mod:`compacted <pymc_fastlogp.rewrites.rows.compact.compact_rows>` lose more, since each term is summed apart. On the right, with Stirling's formula
:math:`\log\Gamma(x) = (x - 1/2) \log x - x + \tfrac12 \log 2\pi + J(x)` and
:math:`\Gamma(a + 1) = a \, \Gamma(a)`, :math:`b = a + 1`, :math:`m = k - 1`,

.. math::

    \log\Gamma(a + k) - \log\Gamma(a) &= \log a + \log\Gamma(b + m) - \log\Gamma(b) \\
    &= \log a - m - J(b) + R, \qquad R = m \log b + (b + m - \tfrac12) \log(1 + m/b) + J(b + m)

no term is much larger than the whole: the two of :math:`R` are about :math:`m \log b` and :math:`m` where :math:`m < b`, and add up to
about :math:`m \log m` like the whole where :math:`m > b`. The step from :math:`a` to :math:`a + 1` does that for small :math:`a`,
where :math:`k \log a` and :math:`J(a)` would cancel. So each term may be summed over rows by itself. Only :math:`R` reads :math:`a` and :math:`k`
together, and it reads the logarithm of :math:`b` where that is shared, so that a row has one logarithm of its own, as gammaln had. The derivative
:math:`\psi(a + k) - \psi(a)` keeps its digits, too: see :mod:`~pymc_fastlogp.rewrites.loggamma.binet`.

From :math:`k = 1/2` on polynomials for :math:`J` are at hand; a smaller one that is not zero is refused. Rows that each have an ``a`` of their own are, too:
their terms are not summed apart, and they would have three logarithms instead of two.

At :math:`a = 0` both sides are :math:`-\infty`, or nan where :math:`k = 0`, and both are nan where ``a`` is infinite; but of
``a = exp(x)`` the logarithm is ``x``, also where the exponential underflows.
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
# Below, J(a + k) would need another polynomial.
LEAST = 0.5


@node_rewriter([gammaln])
def local_rising_factorial(fgraph: FunctionGraph, node: Apply) -> dict[Variable, Variable] | None:
    """Rewrite ``gammaln(a + k) - gammaln(a)`` within a sum."""
    return with_pairs_replaced(fgraph, node, _accepts, _log_rising)


def _accepts(pair: Pair, out: TensorVariable) -> bool:
    return out.type.dtype == DTYPE and is_rising(pair)


def is_rising(pair: Pair) -> bool:
    """Return whether ``k`` is constant, zero or at least 1/2, and ``a`` not negative."""
    k = pair.k.constant
    if pair.k.multiples or pair.a.type.dtype != DTYPE:
        return False
    in_range = np.isfinite(k) & ((k == 0) | (k >= LEAST))
    return bool(k.any() and in_range.all()) and is_nonnegative(pair.a)


def _log_rising(pair: Pair) -> TensorVariable:
    """Return what replaces a pair."""
    a, k = as_gathered(pair.a), pair.k.constant
    is_step = k > 0
    safe = np.where(is_step, k, 1.0)
    logarithm = of_entries(_log, a)
    if (safe != 1).any():
        of_a = of_entries(_log_minus_binet, a)
        whole = rising(a, constant(safe), of_entries(_log1p, a))
        logarithm = add(of_a, whole, constant(1 - safe))
    if not is_step.all():
        # A switch takes longer, and its gradient has another.
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
