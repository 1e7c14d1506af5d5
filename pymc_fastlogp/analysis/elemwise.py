"""Match the scalar Op and the inputs of an Elemwise."""

from collections.abc import Callable
from functools import cache
from typing import cast

import pytensor.scalar as ps
from pytensor.graph.basic import Constant
from pytensor.graph.op import Op
from pytensor.tensor.basic import constant
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value

# Ops that compute in the dtype of their result, so that their operands may be cast to it.
ARITHMETIC = {ps.Add, ps.Sub, ps.Mul, ps.TrueDiv, ps.Exp}


def scalar_op(x: TensorVariable) -> ps.ScalarOp | None:
    """Return the scalar Op of the Elemwise that computes ``x``, None if no Elemwise does."""
    op = x.owner_op
    return op.scalar_op if isinstance(op, Elemwise) else None


# `isinstance` of an abstract class such as Op is slow if the answer is no, and rules ask thousands of times.
_is_subclass: Callable[[type, tuple[type, ...]], bool] = cache(issubclass)


def is_elemwise(op: Op | None, *scalar_ops: type[ps.ScalarOp]) -> bool:
    """Return whether an Op is an Elemwise of one of these scalar Ops."""
    return _is_subclass(type(op), (Elemwise,)) and _is_subclass(
        type(cast(Elemwise, op).scalar_op), scalar_ops
    )


def is_made_by(x: TensorVariable, *scalar_ops: type[ps.ScalarOp]) -> bool:
    """Return whether ``x`` is an elementwise result of one of these scalar Ops."""
    return is_elemwise(x.owner_op, *scalar_ops)


def operands(x: TensorVariable, *scalar_ops: type[ps.ScalarOp]) -> list[TensorVariable]:
    """Return ``[a, b, ...]`` if ``x`` is ``f(a, b, ...)`` with ``f`` one of these Ops, else an empty list.

    Operands of sums, products, quotients and exponentials are cast to the dtype of ``x``. A rule can then add two float32 operands
    of a float64 sum without losing digits, and two int8 operands without overflow.
    """
    if not is_made_by(x, *scalar_ops):
        return []
    if type(scalar_op(x)) not in ARITHMETIC:
        return list(x.owner.inputs)
    return [in_type(a, x.type.dtype) for a in x.owner.inputs]


def in_type(x: TensorVariable, dtype: str) -> TensorVariable:
    """Return ``x`` cast to a dtype; a constant stays a constant."""
    if x.type.dtype == dtype:
        return x
    return constant(x.data.astype(dtype)) if isinstance(x, Constant) else x.astype(dtype)


def operand(x: TensorVariable, *scalar_ops: type[ps.ScalarOp]) -> TensorVariable | None:
    """Return ``a`` if ``x`` is ``f(a)`` with ``f`` one of these Ops, else None."""
    found = operands(x, *scalar_ops)
    return found[0] if len(found) == 1 else None


def squared(x: TensorVariable) -> TensorVariable | None:
    """Return ``a`` if ``x`` is ``sqr(a)`` or ``a ** 2``, else None."""
    base = raised_to(x, 2)
    return operand(x, ps.Sqr) if base is None else base


def raised_to(x: TensorVariable, exponent: float) -> TensorVariable | None:
    """Return ``a`` if ``x`` is ``a ** exponent``, else None."""
    power = operands(x, ps.Pow)
    if not power or fill_value(power[1]) != exponent:
        return None
    return power[0] if has_shape_of(x, power[0], power[1]) else None


def negated(x: TensorVariable) -> TensorVariable | None:
    """Return ``a`` if ``x`` is ``-a`` or ``-1 * a``, else None."""
    factors = operands(x, ps.Mul)
    if len(factors) == 2 and fill_value(factors[0]) == -1:
        number, other = factors
        return other if has_shape_of(x, other, number) else None
    return operand(x, ps.Neg)


def has_shape_of(x: TensorVariable, a: TensorVariable, number: TensorVariable) -> bool:
    """Return whether ``a`` is known to have the shape of ``x``, the result of ``a`` and a constant fill ``number``.

    A fill of unknown length may broadcast ``a`` at run time.
    """
    return None not in number.type.shape and a.type.broadcastable == x.type.broadcastable
