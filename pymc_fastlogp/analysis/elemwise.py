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

# What is taken apart, and computes in the type of its result.
ARITHMETIC = {ps.Add, ps.Sub, ps.Mul, ps.TrueDiv, ps.Exp}


def scalar_op(x: TensorVariable) -> ps.ScalarOp | None:
    """Return the scalar Op of the Elemwise that makes ``x``; None if something else makes it."""
    op = x.owner_op
    return op.scalar_op if isinstance(op, Elemwise) else None


# The isinstance of an Op, which is an abstract class's, takes long where it is none, and rules ask thousands of times.
_is_a: Callable[[type, tuple[type, ...]], bool] = cache(issubclass)


def is_elemwise(op: Op | None, *scalar_ops: type[ps.ScalarOp]) -> bool:
    """Return whether an Op is an Elemwise of one of these scalar Ops."""
    return _is_a(type(op), (Elemwise,)) and _is_a(type(cast(Elemwise, op).scalar_op), scalar_ops)


def is_made_by(x: TensorVariable, *scalar_ops: type[ps.ScalarOp]) -> bool:
    """Return whether ``x`` is an elementwise result of one of these scalar Ops."""
    return is_elemwise(x.owner_op, *scalar_ops)


def operands(x: TensorVariable, *scalar_ops: type[ps.ScalarOp]) -> list[TensorVariable]:
    """Return ``[a, b, ...]`` if ``x`` is ``f(a, b, ...)`` with ``f`` one of these; else an empty list.

    Those of sums, products, quotients and exponentials have the type of ``x``: two of float32 may then be added without the third, of
    float64, that they stood beside, and lose no digits, and two of int8 do not go round.
    """
    if not is_made_by(x, *scalar_ops):
        return []
    if type(scalar_op(x)) not in ARITHMETIC:
        return list(x.owner.inputs)
    return [in_type(a, x.type.dtype) for a in x.owner.inputs]


def n_leaves(x: TensorVariable, *scalar_ops: type[ps.ScalarOp]) -> int:
    """Return how many operands ``x`` has when what is made by one of these is taken apart again and again.

    What is read twice counts twice, as ``u`` in ``u * (u * v)``: after twenty such steps they are a million.
    """

    @cache
    def count(x: TensorVariable) -> int:
        return sum(map(count, x.owner.inputs)) if is_made_by(x, *scalar_ops) else 1

    return count(x)


def in_type(x: TensorVariable, dtype: str) -> TensorVariable:
    """Return ``x`` in a type, a constant as one."""
    if x.type.dtype == dtype:
        return x
    return constant(x.data.astype(dtype)) if isinstance(x, Constant) else x.astype(dtype)


def operand(x: TensorVariable, *scalar_ops: type[ps.ScalarOp]) -> TensorVariable | None:
    """Return ``a`` if ``x`` is ``f(a)`` with ``f`` one of these, else None."""
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
    """Return whether ``a`` has the shape of ``x``, made of it and of a number, which may be repeated so often as only the call knows."""
    return None not in number.type.shape and a.type.broadcastable == x.type.broadcastable
