"""Split sums into signed terms, and products into factors that may be inverse; and join them again.

``split_sum`` and ``split_product`` split the last operation only. ``flatten_sum`` and ``flatten_product`` split nested operations, too:
the sum :math:`a - (b - c)` has the terms :math:`+a, -b, +c`, and the product :math:`a / (b / c)` the factors
:math:`a, b^{-1}, c`.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

import pytensor.scalar as ps
from pytensor.tensor.math import add, mul
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.elemwise import is_made_by, negated, operands


class Signed(NamedTuple):
    """A term of a sum: ``x``, or ``-x`` if it is negative."""

    x: TensorVariable
    is_negative: bool


class Factor(NamedTuple):
    """A factor of a product: ``x``, or ``1 / x`` if it is inverse."""

    x: TensorVariable
    is_inverse: bool


def split_sum(x: TensorVariable, *, cast: bool = True) -> list[Signed]:
    """Return the terms of a sum or a difference, an empty list if ``x`` is neither.

    Parameters
    ----------
    x : TensorVariable
        Any expression.
    cast : bool
        Whether to cast the terms to the dtype of ``x``.
    """
    return [Signed(*part) for part in _split(x, ps.Add, ps.Sub, cast)]


def split_product(x: TensorVariable, *, cast: bool = True) -> list[Factor]:
    """Return the factors of a product or a quotient, an empty list if ``x`` is neither; ``cast`` as in :func:`split_sum`."""
    return [Factor(*part) for part in _split(x, ps.Mul, ps.TrueDiv, cast)]


def _split(
    x: TensorVariable, direct: type[ps.ScalarOp], inverse: type[ps.ScalarOp], cast: bool
) -> Iterator[tuple[TensorVariable, bool]]:
    """Yield the operands of one of two Ops; only the second operand of ``inverse`` is inverted."""
    if not is_made_by(x, direct, inverse):
        return
    is_inverse = is_made_by(x, inverse)
    for i, part in enumerate(operands(x, direct, inverse) if cast else x.owner.inputs):
        yield part, is_inverse and i == 1


def flatten_sum(x: TensorVariable) -> Iterator[Signed]:
    """Yield the terms of nested sums, differences and negations; an integer sum is one term, because it may overflow.

    Their number may grow exponentially with the depth, so a caller bounds how many it takes.
    """
    stack = [Signed(x, is_negative=False)]
    while stack:
        term = stack.pop()
        parts = _signed_parts(term.x)
        stack += [Signed(part.x, term.is_negative ^ part.is_negative) for part in reversed(parts)]
        if not parts:
            yield term


def _signed_parts(x: TensorVariable) -> list[Signed]:
    if x.type.dtype not in float_dtypes:
        return []
    if parts := split_sum(x):
        return parts
    positive = negated(x)
    return [] if positive is None else [Signed(positive, is_negative=True)]


def flatten_product(x: TensorVariable) -> Iterator[Factor]:
    """Yield the factors of nested products and quotients; an integer product is one factor, because it may overflow.

    A caller bounds :func:`count_leaves` first.
    """
    parts = split_product(x) if x.type.dtype in float_dtypes else []
    for part in parts:
        for inner in flatten_product(part.x):
            yield Factor(inner.x, part.is_inverse ^ inner.is_inverse)
    if not parts:
        yield Factor(x, is_inverse=False)


def flatten(x: TensorVariable, scalar_op: type[ps.ScalarOp]) -> list[TensorVariable]:
    """Return the operands of nested Ops of one class, ``[x]`` if ``x`` is no such Op. A caller bounds :func:`count_leaves` first."""
    parts = operands(x, scalar_op)
    return [leaf for part in parts for leaf in flatten(part, scalar_op)] if parts else [x]


def count_leaves(x: TensorVariable, *scalar_ops: type[ps.ScalarOp]) -> int:
    """Return the number of operands after nested Ops of these classes are flattened.

    An operand that is read twice counts twice, as ``u`` in ``u * (u * v)``: the number may grow exponentially with the depth.
    """

    @cache
    def count(x: TensorVariable) -> int:
        return sum(map(count, x.owner.inputs)) if is_made_by(x, *scalar_ops) else 1

    return count(x)


def add_all(terms: Iterable[TensorVariable]) -> TensorVariable:
    """Return the sum of one or more terms."""
    first, *others = terms
    return add(first, *others) if others else first


def multiply_all(factors: Iterable[TensorVariable]) -> TensorVariable:
    """Return the product of one or more factors."""
    first, *others = factors
    return mul(first, *others) if others else first
