r"""Take the logarithm of the probability of an interval of a normal distribution without cancellation.

.. code::

    log(k * erf(v) - k * erf(u))      ->  log(2 * k) + log_of_erf_interval(u, v, v - u)
    log(k * erfc(u) - k * erfc(v))    ->  the same
    switch(u > 0, ..,                 ->  log(2) + log_of_erf_interval(u, v, v - u)
        switch(v < 0, ..,
            log(erf(v) - erf(u))))

The first two forms are :math:`\log(\Phi(b) - \Phi(a))` written by hand. The third is that of ``pm.OrderedProbit``, ``pm.TruncatedNormal`` and
``pm.Truncated`` of a normal distribution, with

.. code::

    log(erfcx(u) - exp(u**2 - v**2) * erfcx(v)) - u**2        in place of the first dots
    log(erfcx(-v) - exp(v**2 - u**2) * erfcx(-u)) - v**2      in place of the second.

:mod:`~pymc_fastlogp.rewrites.scalars.log_of_erf_interval` derives the right side.

The first two forms subtract two numbers next to one if both ends are in one tail. Eight standard deviations from the mean no digit is left.
Beyond 37, both probabilities underflow. The third form loses digits as both ends approach each other. The right side loses none, and neither
does its gradient. Factors and terms that :math:`u` and :math:`v` share cancel in :math:`v - u`: for outcomes rounded to one half, the
difference of :math:`(y + \frac14 - \mu) / \sigma` and :math:`(y - \frac14 - \mu) / \sigma` is :math:`1 / (2 \sigma)`, to the last digit.

Where the left side is rounded to zero, its logarithm is :math:`-\infty`. The right side is finite.

When it applies
---------------
Before the gradient, in single and double precision, with ``k`` a positive constant, or one.

When it refuses
---------------
Other combinations of error functions, factors that differ, and probabilities whose logarithm is not taken.
"""

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scalar.math import Erf, Erfc, Erfcx
from pytensor.tensor.basic import constant, switch
from pytensor.tensor.math import log
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.algebra import Signed
from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import in_type, operand, operands, squared
from pymc_fastlogp.rewrites.replacement import replacement
from pymc_fastlogp.rewrites.scalars.log_of_erf_interval import (
    FAR,
    LogOfInterval,
    log_of_erf_interval,
)
from pymc_fastlogp.rewrites.scalars.structural_difference import (
    difference,
    is_multiple,
    terms_of,
)


@node_rewriter([log])
def local_log_of_normal_interval(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``log(k * erf(v) - k * erf(u)) -> log(2 * k) + log_of_erf_interval(u, v, v - u)``, and the same of ``erfc``."""
    [x], [out] = node.inputs, node.outputs
    sides = [_split_factor(side) for side in operands(x, ps.Sub)]
    if not sides or x.type.dtype != out.type.dtype or x.type.dtype not in FAR:
        return None
    [(k, first), (other_k, second)] = sides
    if k != other_k or not 0 < k < np.inf:
        return None
    for function, (upper, lower) in ((Erf, (first, second)), (Erfc, (second, first))):
        v, u = operand(upper, function), operand(lower, function)
        if v is not None and u is not None:
            u, v = (in_type(end, x.type.dtype) for end in (u, v))
            return replacement(out, _log_of_multiple(2 * k, u, v))
    return None


def _log_of_multiple(k: float, u: TensorVariable, v: TensorVariable) -> TensorVariable:
    """Return ``log(k * (erf(v) - erf(u)) / 2)``."""
    interval = log_of_erf_interval(u, v, difference(v, u))
    return interval if k == 1 else constant(np.array(np.log(k), dtype=v.type.dtype)) + interval


def _split_factor(x: TensorVariable) -> tuple[float, TensorVariable]:
    """Return a constant factor and the other factor of a product, 1 and ``x`` if there is none."""
    match operands(x, ps.Mul):
        case [k, other] if (number := fill_value(k)) is not None:
            return float(number), other
    return 1.0, x


@node_rewriter([switch])
def local_switch_of_normal_interval(
    fgraph: FunctionGraph, node: Apply
) -> list[TensorVariable] | None:
    """Replace PyMC's three cases of the logarithm of a difference of error functions by the last one, which is stable."""
    [is_above, above, otherwise], [out] = node.inputs, node.outputs
    if not (cases := operands(otherwise, ps.Switch)):
        return None
    is_below, below, interval = cases
    intervals = [x for term in terms_of(interval) if (x := _interval(term)) is not None]
    if len(intervals) != 1:
        return None
    [(u, v)] = intervals
    is_form = (
        _is_comparison(is_above, ps.GT, u)
        and _is_comparison(is_below, ps.LT, v)
        and _is_log_of_tail(above, u, v, 1)
        and _is_log_of_tail(below, v, u, -1)
    )
    return replacement(out, interval) if is_form else None


def _interval(term: Signed) -> tuple[TensorVariable, TensorVariable] | None:
    """Return the ends if a term is the logarithm of an interval, else None."""
    ends = () if term.is_negative else operands(term.x, LogOfInterval)
    return (ends[0], ends[1]) if ends else None


def _is_comparison(
    condition: TensorVariable, comparison: type[ps.ScalarOp], x: TensorVariable
) -> bool:
    """Return whether ``condition`` compares ``x`` with zero."""
    match operands(condition, comparison):
        case [side, bound]:
            return fill_value(bound) == 0 and equal_computations([side], [x])
    return False


def _is_log_of_tail(
    x: TensorVariable, near: TensorVariable, far: TensorVariable, sign: int
) -> bool:
    """Return whether ``x`` is ``log(erfcx(sign * near) - exp(near**2 - far**2) * erfcx(sign * far)) - near**2``."""
    terms = terms_of(x)
    logarithms = [a for term in terms if (a := operand(term.x, ps.Log)) is not None]
    squares = [term for term in terms if squared(term.x) is not None]
    if len(terms) != 2 or len(logarithms) != 1 or len(squares) != 1:
        return False
    if not squares[0].is_negative or not _is_square(squares[0].x, near):
        return False
    match operands(logarithms[0], ps.Sub):
        case [first, second]:
            if not _is_erfcx(first, near, sign):
                return False
            match operands(second, ps.Mul):
                case [a, b]:
                    exponential, tail = (a, b) if operand(a, ps.Exp) is not None else (b, a)
                    return _is_erfcx(tail, far, sign) and _is_exp_of_difference(
                        exponential, near, far
                    )
    return False


def _is_square(x: TensorVariable, root: TensorVariable) -> bool:
    base = squared(x)
    return base is not None and equal_computations([base], [root])


def _is_erfcx(x: TensorVariable, argument: TensorVariable, sign: int) -> bool:
    """Return whether ``x`` is ``erfcx(sign * argument)``."""
    inner = operand(x, Erfcx)
    return inner is not None and is_multiple(inner, sign, argument)


def _is_exp_of_difference(x: TensorVariable, near: TensorVariable, far: TensorVariable) -> bool:
    """Return whether ``x`` is ``exp(near**2 - far**2)``."""
    exponent = operand(x, ps.Exp)
    sides = [] if exponent is None else operands(exponent, ps.Sub)
    return bool(sides) and _is_square(sides[0], near) and _is_square(sides[1], far)
