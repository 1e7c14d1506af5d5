r"""``log(a * exp(x) * s) -> log(a) + x + log(s)``: take no logarithm of what is known to be a product.

.. code::

    log(a * exp(x) * s)       ->  log(a) + x + log(s) + limit
    log(a * exp(x) / s)       ->  log(a) + x - log(s) + limit
    log(a * exp(v)[g])        ->  log(a) + v[g] + limit
    log(a * exp(x) * exp(y))  ->  log(a * exp(x + y))
    log(exp(x) / exp(y))      ->  x - y
    log((r * s)[g])           ->  (log(r) + log(s))[g] + limit

``a`` is a constant, ``s`` has fewer entries than the product, and no factor is below zero. So a rate
:math:`\mu_{ik} = e_{ik} f_i \lambda_k` has :math:`\log\mu_{ik} = \log e_{ik} + \log f_i + \log\lambda_k`, without a logarithm of an
entry, and a sum over rows of it falls into sums over :math:`i` and :math:`k` alone.

The limit is zero, but :math:`-\infty` where the product is zero, or divided by ``-0.0``, and :math:`\infty` where it is infinite. There the logarithm is
what it was, also where factors that are neither under- or overflow together. Exponentials are multiplied and divided first, as PyTensor does after
the gradient: their product may be finite where one of them is not, and its logarithm where none is zero or infinite. A quotient PyTensor splits itself where one of its parts is
a positive constant, or the other one the sum of its exponentials. Elsewhere the sum
is off by at most :math:`\epsilon \sum |\log f|` over its factors :math:`f`, where the left side has the rounding of the product.
"""

from functools import cache

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import constant, switch
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Sum, add, exp, le, log, lt, sub
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.algebra import count_leaves, flatten, multiply_all, split_product
from pymc_fastlogp.analysis.elemwise import is_made_by, operand, operands
from pymc_fastlogp.analysis.gathers import SELECTIONS
from pymc_fastlogp.analysis.ranges import is_nonnegative

# A product of more factors is left whole: those of `u * u` are twice as many as those of `u`.
MOST_FACTORS = 256


@node_rewriter([log])
def local_log_of_product(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``log(a * exp(x) * s) -> log(a) + x + log(s)``."""
    [x], [out] = node.inputs, node.outputs
    if (merged := with_one_exponential(x)) is not None:
        exponent = operand(merged, ps.Exp)
        logarithm = log(merged) if exponent is None else exponent
        copy_stack_trace(out, logarithm)
        return [logarithm] if out.type.is_super(logarithm.type) else None
    logs = sum_of_logs(out)
    if logs is None:
        return None
    logarithm = add(*(operands(logs, ps.Add) or [logs]), limit_of_log(x))
    if not out.type.is_super(logarithm.type):
        return None
    copy_stack_trace(out, logarithm)
    return [logarithm]


def with_one_exponential(x: TensorVariable) -> TensorVariable | None:
    """Return a product of several exponentials, or a quotient of two, with that of their sum; None if it is neither."""
    quotient = [_exponent(part) for part in operands(x, ps.TrueDiv)]
    if quotient and None not in quotient:
        return exp(sub(*quotient))
    factors = _factors(x)
    exponents = [a for factor in factors if (a := _exponent(factor)) is not None]
    if len(exponents) < 2:
        return None
    others = [factor for factor in factors if _exponent(factor) is None]
    return multiply_all([*others, exp(add(*exponents))])


def _factors(x: TensorVariable) -> list[TensorVariable]:
    """Return what ``x`` is a product of, or ``x`` alone; a product within a product is kept apart where something else reads it, too."""
    return flatten(x, ps.Mul) if count_leaves(x, ps.Mul) <= MOST_FACTORS else [x]


def _exponent(x: TensorVariable) -> TensorVariable | None:
    """Return ``a`` if ``x`` is ``exp(a)``, with axes in another order, or more of length one."""
    if isinstance(x.owner_op, DimShuffle):
        exponent = _exponent(x.owner.inputs[0])
        return None if exponent is None else x.owner.op(exponent)
    return operand(x, ps.Exp)


def sum_of_logs(logarithm: TensorVariable) -> TensorVariable | None:
    """Return the sum of the logarithms of the factors of what a logarithm is taken of, None if it is no such product."""
    [x] = logarithm.owner.inputs
    is_float = x.type.dtype == logarithm.type.dtype and x.type.dtype in float_dtypes
    return _logarithm(x, logarithm) if is_float and _is_product(x) else None


def limit_of_log(x: TensorVariable) -> TensorVariable:
    """Return what makes a sum of logarithms that of ``x`` where that is not finite, and zero elsewhere; no factor of ``x`` is negative.

    So ``x`` is below zero only where it is divided by ``-0.0``, and infinite. The sum is infinite there, and together they are nan.
    """
    zero, infinity = (constant(np.array(value, dtype=x.type.dtype)) for value in (0, np.inf))
    return switch(le(x, zero), -infinity, switch(lt(x, infinity), zero, infinity))


def _is_product(x: TensorVariable) -> bool:
    """Return whether ``x`` is a product, or a quotient that PyTensor does not split, or entries of one."""
    while isinstance(x.owner_op, SELECTIONS):
        x = x.owner.inputs[0]
    quotient = operands(x, ps.TrueDiv)
    is_split = any(isinstance(part, TensorConstant) for part in quotient) or _is_softmax(quotient)
    return is_made_by(x, ps.Mul) or (bool(quotient) and not is_split)


def _is_softmax(quotient: list[TensorVariable]) -> bool:
    """Return whether a quotient is that of exponentials by their sum, whose logarithm PyTensor finds where they underflow, too."""
    if not quotient or operand(quotient[0], ps.Exp) is None:
        return False
    exponentials, total = quotient
    while isinstance(total.owner_op, DimShuffle):
        total = total.owner.inputs[0]
    return isinstance(total.owner_op, Sum) and total.owner.inputs[0] is exponentials


def _logarithm(x: TensorVariable, out: TensorVariable) -> TensorVariable | None:
    """Return the logarithm of ``x`` without one of as many entries as ``out``; None if there is none, or a sign is not known."""

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
    """Return whether ``x`` is known to have fewer entries than ``out``: half at most."""
    if None in x.type.shape or None in out.type.shape:
        return False
    return 2 * np.prod(x.type.shape, dtype=int) <= np.prod(out.type.shape, dtype=int)
