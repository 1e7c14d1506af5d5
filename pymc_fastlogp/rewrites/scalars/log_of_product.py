r"""Write the logarithm of a product as a sum of logarithms of short factors.

.. code::

    log(a * exp(x) * s)       ->  log(a) + x + log(s) + limit
    log(a * exp(x) / s)       ->  log(a) + x - log(s) + limit
    log(a * exp(v)[g])        ->  log(a) + v[g] + limit
    log(a * exp(x) * exp(y))  ->  log(a * exp(x + y))
    log(exp(x) / exp(y))      ->  x - y
    log(exp(x)[g])            ->  x[g]
    log((r * s)[g])           ->  (log(r) + log(s))[g] + limit

``a`` is constant, ``s`` has fewer entries than the product, and no factor is negative. A rate
:math:`\mu_{ik} = e_{ik} f_i \lambda_k` then has :math:`\log\mu_{ik} = \log e_{ik} + \log f_i + \log\lambda_k`, without one
logarithm per entry. A sum over rows splits into sums over :math:`i` and :math:`k` alone, so rows can be compacted by group.

The limit is :math:`-\infty` where the product is zero or divided by ``-0.0``, :math:`\infty` where the product is infinite, and
zero elsewhere. So the logarithm keeps its value where only the product of several factors underflows or overflows.

Exponentials are merged first, as PyTensor does after the gradient: :math:`e^{x + y}` may be finite where :math:`e^x` is not.
Elsewhere the sum is off by at most :math:`\epsilon \sum |\log f|` over the factors :math:`f`, where the left side has the
rounding of the product.

When it applies
---------------
Before the gradient, to the logarithm of a product or quotient, or of entries gathered from one. Each factor is an exponential,
a constant, gathered from such, or has at most half of the entries of the product.

When it refuses
---------------
- A factor as long as the product that is no exponential, a factor of unknown sign, unknown shapes, mixed dtypes.
- A quotient with a constant part, or of exponentials and their sum, which PyTensor splits itself.
"""

from functools import cache

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import constant, switch
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Sum, add, exp, le, log, lt, sub
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.algebra import count_leaves, flatten, multiply_all, split_product
from pymc_fastlogp.analysis.elemwise import is_made_by, operand, operands
from pymc_fastlogp.analysis.gathers import SELECTIONS
from pymc_fastlogp.analysis.ranges import is_nonnegative
from pymc_fastlogp.rewrites.replacement import replacement

# Bound on the expanded factors, which grow exponentially in nested products such as `u * u`.
MOST_FACTORS = 256


@node_rewriter([log])
def local_log_of_product(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``log(a * exp(x) * s) -> log(a) + x + log(s)``."""
    [x], [out] = node.inputs, node.outputs
    if (selected := _exponent(x)) is not None:
        return replacement(out, selected)
    if (merged := with_one_exponential(x)) is not None:
        exponent = operand(merged, ps.Exp)
        return replacement(out, log(merged) if exponent is None else exponent)
    logs = sum_of_logs(out)
    if logs is None:
        return None
    return replacement(out, add(*(operands(logs, ps.Add) or [logs]), limit_of_log(x)))


def with_one_exponential(x: TensorVariable) -> TensorVariable | None:
    """Return a product of several exponentials, or a quotient of two, with the exponential of their sum instead; None for other ``x``."""
    quotient = [_exponent(part) for part in operands(x, ps.TrueDiv)]
    if quotient and None not in quotient:
        return exp(sub(*quotient))
    factors = _factors(x)
    exponents = [_exponent(factor) for factor in factors]
    if None in exponents:
        # Exponentials of a table are computed before entries are gathered, and stay factors.
        exponents = [_exponent(factor, DimShuffle) for factor in factors]
    others = [factor for factor, exponent in zip(factors, exponents) if exponent is None]
    if len(factors) - len(others) < 2:
        return None
    return multiply_all([*others, exp(add(*(a for a in exponents if a is not None)))])


def _factors(x: TensorVariable) -> list[TensorVariable]:
    """Return the factors of ``x``, or ``x`` itself. A product within a product is not split if another node reads the inner product."""
    return flatten(x, ps.Mul) if count_leaves(x, ps.Mul) <= MOST_FACTORS else [x]


def _exponent(
    x: TensorVariable, selections: type | tuple[type, ...] = SELECTIONS
) -> TensorVariable | None:
    """Return ``a`` if ``x`` is ``exp(a)``, and entries of ``a`` if ``x`` selects those of ``exp(a)``."""
    if isinstance(x.owner_op, selections):
        exponent = _exponent(x.owner.inputs[0], selections)
        return None if exponent is None else x.owner.op(exponent, *x.owner.inputs[1:])
    return operand(x, ps.Exp)


def sum_of_logs(logarithm: TensorVariable) -> TensorVariable | None:
    """Return ``log(x)`` of a product ``x`` as the sum of the logarithms of its factors; None if the rule refuses."""
    [x] = logarithm.owner.inputs
    is_float = x.type.dtype == logarithm.type.dtype and x.type.dtype in float_dtypes
    return _logarithm(x, logarithm) if is_float and _is_product(x) else None


def limit_of_log(x: TensorVariable) -> TensorVariable:
    """Return the limit to add to a sum of logarithms: infinite where ``log(x)`` is infinite, zero elsewhere.

    No factor of ``x`` is negative, so ``x`` is negative only where a divisor is ``-0.0``. There the sum is infinite with the other
    sign, and both add up to NaN.
    """
    zero, infinity = (constant(np.array(value, dtype=x.type.dtype)) for value in (0, np.inf))
    return switch(le(x, zero), -infinity, switch(lt(x, infinity), zero, infinity))


def _is_product(x: TensorVariable) -> bool:
    """Return whether ``x`` is a product, a quotient that PyTensor does not split, or entries gathered from one."""
    while isinstance(x.owner_op, SELECTIONS):
        x = x.owner.inputs[0]
    quotient = operands(x, ps.TrueDiv)
    is_split = any(isinstance(part, TensorConstant) for part in quotient) or _is_softmax(quotient)
    return is_made_by(x, ps.Mul) or (bool(quotient) and not is_split)


def _is_softmax(quotient: list[TensorVariable]) -> bool:
    """Return whether a quotient is a softmax, whose logarithm PyTensor rewrites without underflow."""
    if not quotient or operand(quotient[0], ps.Exp) is None:
        return False
    exponentials, total = quotient
    while isinstance(total.owner_op, DimShuffle):
        total = total.owner.inputs[0]
    return isinstance(total.owner_op, Sum) and total.owner.inputs[0] is exponentials


def _logarithm(x: TensorVariable, out: TensorVariable) -> TensorVariable | None:
    """Return the logarithm of ``x`` without a logarithm of as many entries as ``out``; None if there is none."""

    @cache
    def of(x: TensorVariable) -> TensorVariable | None:
        if (exponent := operand(x, ps.Exp)) is not None:
            return exponent
        if isinstance(x, TensorConstant):
            return _of_constant(x, out.type.dtype)
        if isinstance(x.owner_op, SELECTIONS):
            moved = of(x.owner.inputs[0])
            return None if moved is None else x.owner.op(moved, *x.owner.inputs[1:])
        if factors := split_product(x):
            parts = [of(factor.x) for factor in factors]
            combine = sub if factors[-1].is_inverse else add
            return None if None in parts else combine(*parts)
        is_own = x.type.dtype == out.type.dtype and _is_smaller(x, out) and is_nonnegative(x)
        return log(x) if is_own else None

    return of(x)


def _of_constant(x: TensorConstant, dtype: str) -> TensorVariable | None:
    with np.errstate(divide="ignore"):
        return constant(np.log(x.data, dtype=dtype)) if (x.data >= 0).all() else None


def _is_smaller(x: TensorVariable, out: TensorVariable) -> bool:
    """Return whether ``x`` is known to have at most half as many entries as ``out``."""
    if None in x.type.shape or None in out.type.shape:
        return False
    return 2 * np.prod(x.type.shape, dtype=int) <= np.prod(out.type.shape, dtype=int)
