r"""Take the logarithm of a difference of distribution functions in closed form, in place of a difference of their logarithms.

``pm.math.logdiffexp`` of two ``pm.logcdf`` is the log probability of an interval: of a rounded, truncated or interval-censored outcome.

.. code::

    logdiffexp(-softplus(-b), -softplus(-a))  ->  log1mexp(a - b) - softplus(-b) - softplus(a)
    logdiffexp(log1mexp(-b), log1mexp(-a))    ->  log1mexp(a - b) - a

with ``logdiffexp(x, y) = switch(y == -inf, x, x + log1mexp(y - x))``. The first row has the distribution functions of logistic variables.
The second row has those of the form :math:`1 - e^{-H}`, where :math:`H` is the cumulative hazard: exponential, Weibull and geometric
variables.

:mod:`~pymc_fastlogp.rewrites.scalars.ordered_logit` derives the first row. The second row is
:math:`e^{-a} - e^{-b} = e^{-a} (1 - e^{a - b})`.

For close ends the left side subtracts two nearly equal logarithms, which are large in the lower tail. The right side has all digits of
:math:`b - a`, and so does its gradient. What :math:`a` and :math:`b` share cancels in :math:`b - a`. The right side also has fewer
transcendental functions.

When it applies
---------------
Before the gradient, to ``pm.math.logdiffexp`` of two log distribution functions of one kind. Checks of parameters are kept.

When it refuses
---------------
- Other distribution functions. PyMC's ``normal_lcdf`` rounds the square root of two to single precision, and its two cases round it
  differently, so no interval of a normal distribution equals the left side.
- ``x + log1mexp(y - x)`` without the switch.
"""

from collections.abc import Callable

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.math import Log1mexp, Softplus
from pytensor.tensor.basic import constant, switch
from pytensor.tensor.math import log1mexp
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import is_made_by, negated, operand, operands
from pymc_fastlogp.rewrites.replacement import replacement
from pymc_fastlogp.rewrites.scalars.ordered_logit import log_of_sigmoid_difference
from pymc_fastlogp.rewrites.scalars.structural_difference import difference

Argument = Callable[[TensorVariable], TensorVariable | None]
Interval = Callable[[TensorVariable, TensorVariable], TensorVariable]


@node_rewriter([switch])
def local_logdiffexp_of_cdfs(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Replace ``logdiffexp`` of two log distribution functions of one kind."""
    [is_zero, high, total], [out] = node.inputs, node.outputs
    if out.type.dtype not in float_dtypes or (low := _subtrahend(total, high)) is None:
        return None
    match operands(is_zero, ps.EQ):
        case [x, bound] if fill_value(bound) == -np.inf and equal_computations([x], [low]):
            pass
        case _:
            return None
    checks: list[Apply] = []
    upper, lower = (_without_checks(x, checks) for x in (high, low))
    for argument, interval in KINDS:
        b, a = argument(upper), argument(lower)
        if b is not None and a is not None and b.type.dtype == a.type.dtype == out.type.dtype:
            return replacement(out, _with_checks(interval(b, a), checks))
    return None


def _subtrahend(total: TensorVariable, x: TensorVariable) -> TensorVariable | None:
    """Return ``y`` if ``total`` is ``x + log1mexp(y - x)``, else None."""
    match operands(total, ps.Add):
        case [a, b]:
            sides = [(a, b), (b, a)]
        case _:
            return None
    for first, second in sides:
        argument = operand(second, Log1mexp)
        difference = [] if argument is None else operands(argument, ps.Sub)
        if difference and equal_computations([first, difference[1]], [x, x]):
            return difference[0]
    return None


def _without_checks(x: TensorVariable, checks: list[Apply]) -> TensorVariable:
    """Return what checks of parameters pass on, and append the checks."""
    while isinstance(x.owner_op, CheckAndRaise):
        checks.append(x.owner)
        x = x.owner.inputs[0]
    return x


def _with_checks(x: TensorVariable, checks: list[Apply]) -> TensorVariable:
    done: list[tuple[CheckAndRaise, list[Variable]]] = []
    for node in checks:
        conditions = node.inputs[1:]
        if not any(op == node.op and other == conditions for op, other in done):
            done.append((node.op, conditions))
            x = node.op(x, *conditions)
    return x


def _logistic_argument(x: TensorVariable) -> TensorVariable | None:
    """Return ``-b`` if ``x`` is ``-softplus(-b)``, else None."""
    positive = negated(x)
    return None if positive is None else operand(positive, Softplus)


def _log_survival(x: TensorVariable) -> TensorVariable | None:
    """Return ``h`` if ``x`` is ``log1mexp(h)``, zero where ``x`` is -inf by a constant mask; None for other ``x``."""
    match operands(x, ps.Switch):
        case [Constant() as is_zero, below, inside] if fill_value(below) == -np.inf:
            argument = operand(inside, Log1mexp)
            if argument is None or not is_zero.data.any():
                return argument
            return switch(is_zero, constant(np.array(0, dtype=x.type.dtype)), argument)
    return operand(x, Log1mexp)


def _logistic_interval(b: TensorVariable, a: TensorVariable) -> TensorVariable:
    """Return ``log(sigmoid(-b) - sigmoid(-a))``, which is ``log(sigmoid(a) - sigmoid(b))``."""
    return log_of_sigmoid_difference(a, b)


def _interval_of_survival(b: TensorVariable, a: TensorVariable) -> TensorVariable:
    """Return ``log(exp(a) - exp(b))``. Where ``a`` is zero by a constant mask, ``b - a`` is ``b``."""
    gap = difference(_inside_of_mask(b), _inside_of_mask(a))
    if is_made_by(a, ps.Switch):
        gap = switch(a.owner.inputs[0], b, gap)
    return a + log1mexp(gap)


def _inside_of_mask(x: TensorVariable) -> TensorVariable:
    return x.owner.inputs[2] if is_made_by(x, ps.Switch) else x


# Functions from a log distribution function to its argument, and from two arguments to the log probability between them.
KINDS: tuple[tuple[Argument, Interval], ...] = (
    (_logistic_argument, _logistic_interval),
    (_log_survival, _interval_of_survival),
)
