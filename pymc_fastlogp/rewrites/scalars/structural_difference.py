"""Subtract expressions without the parts that they share, so that the difference of close numbers keeps its digits."""

from itertools import islice, product

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Constant, equal_computations
from pytensor.tensor.basic import constant, switch
from pytensor.tensor.math import eq, isinf
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.algebra import (
    Factor,
    Signed,
    add_all,
    count_leaves,
    flatten_product,
    flatten_sum,
    multiply_all,
)
from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import operand

# Bound on the terms of a sum and the factors of a product, whose number grows exponentially in nested ones such as `u + u`.
MOST_TERMS = 64
# Relative difference up to which constants are one number with another rounding.
SAME = 1e-14


def difference(b: TensorVariable, a: TensorVariable) -> TensorVariable:
    """Return ``b - a`` without the factors and terms that both share, zero for equal infinities.

    From ``(high - mu) / sigma`` and ``(low - mu) / sigma`` results ``(high - low) / sigma``, whose rounding does not depend on ``mu``.
    """
    if any(count_leaves(x, ps.Mul, ps.TrueDiv) > MOST_TERMS for x in (b, a)):
        return _difference_of_sums(b, a)
    of_b, of_a = _factors(b), _factors(a)
    shared = _without_shared(of_b, of_a)
    is_opposite, other = _share_opposite_constants(of_b, of_a, shared), _product(of_a, a)
    inner = _difference_of_sums(_product(of_b, b), -other if is_opposite else other)
    if not shared:
        return inner
    factors = [factor.x for factor in shared if not factor.is_inverse]
    divisors = [factor.x for factor in shared if factor.is_inverse]
    whole = multiply_all([inner, *factors])
    return whole / multiply_all(divisors) if divisors else whole


def _factors(x: TensorVariable) -> list[Factor]:
    """Return the factors of a product, with -1 for a negation."""
    if (positive := operand(x, ps.Neg)) is None:
        return [*flatten_product(x)]
    minus_one = constant(np.full((1,) * x.type.ndim, -1, dtype=x.type.dtype))
    return [Factor(minus_one, False), *flatten_product(positive)]


def _share_opposite_constants(of_b: list[Factor], of_a: list[Factor], shared: list[Factor]) -> bool:
    """Move a constant factor of ``b`` that is minus one of ``a`` to what they share. Return whether there is one.

    PyTensor writes ``k * (0 - mu)`` as ``-k * mu``.
    """
    for b, a in product(of_b, of_a):
        number = None if b.is_inverse or a.is_inverse else fill_value(b.x)
        if number is not None and number == -(fill_value(a.x) or np.nan):
            of_b.remove(b)
            of_a.remove(a)
            shared.append(b)
            return True
    return False


def terms_of(x: TensorVariable) -> list[Signed]:
    """Return the terms of a sum, the sum itself if it has too many."""
    terms = [*islice(flatten_sum(x), MOST_TERMS)]
    return terms if len(terms) < MOST_TERMS else [Signed(x, False)]


def total(terms: list[Signed], like: TensorVariable) -> TensorVariable:
    """Return the sum of signed terms in the dtype of ``like``."""
    zero = constant(np.zeros((1,) * like.type.ndim, dtype=like.type.dtype))
    return add_all([-x if is_negative else x for x, is_negative in terms] or [zero])


def gap(b: TensorVariable, a: TensorVariable) -> TensorVariable:
    """Return ``b - a``, zero for equal infinities."""
    return switch(isinf(a) & eq(a, b), np.array(0, dtype=b.type.dtype), b - a)


def is_multiple(x: TensorVariable, number: float, y: TensorVariable) -> bool:
    """Return whether ``x`` is ``number * y`` up to the rounding of constants."""
    if any(count_leaves(z, ps.Mul, ps.TrueDiv) > MOST_TERMS for z in (x, y)):
        return False
    (of_x, others), (of_y, other_ys) = _split_constants(x), _split_constants(y)
    _without_shared(others, other_ys)
    return not others and not other_ys and np.allclose(of_x, number * of_y, rtol=SAME, atol=0)


def _split_constants(x: TensorVariable) -> tuple[np.ndarray, list[Factor]]:
    """Return the product of the constant factors, and the other factors."""
    constants, others = np.ones(()), []
    for factor in flatten_product(x):
        if isinstance(factor.x, Constant):
            value = np.asarray(factor.x.data, dtype=float)
            constants = constants / value if factor.is_inverse else constants * value
        else:
            others.append(factor)
    return constants, others


def _difference_of_sums(b: TensorVariable, a: TensorVariable) -> TensorVariable:
    if (slices := _slices_of_one_sum(b, a)) is not None:
        return gap(*slices)
    of_b, of_a = terms_of(b), terms_of(a)
    _without_shared(of_b, of_a)
    return gap(total(of_b, b), total(of_a, a))


def _slices_of_one_sum(
    b: TensorVariable, a: TensorVariable
) -> tuple[TensorVariable, TensorVariable] | None:
    """Return two slices of the last axis of one sum without its terms that are constant along this axis, None for other ``b`` and ``a``."""
    if not (isinstance(b.owner_op, Subtensor) and isinstance(a.owner_op, Subtensor)):
        return None
    [x, *_], [other, *_] = b.owner.inputs, a.owner.inputs
    if x is not other or x.type.shape[-1:] in ((), (1,), (None,)):
        return None
    if b.type.ndim != x.type.ndim or not all(map(_slices_last_axis_only, (b, a))):
        return None
    terms = terms_of(x)
    varying = [term for term in terms if term.x.type.shape[-1] != 1]
    if len(varying) == len(terms) or not varying:
        return None
    rest = total(varying, x)
    # Of the axes that only the terms left out have, length one remains.
    return tuple(part.owner_op(rest, *part.owner.inputs[1:]) for part in (b, a))


def _slices_last_axis_only(x: TensorVariable) -> bool:
    *others, last = indices_from_subtensor(x.owner.inputs[1:], x.owner_op.idx_list)
    is_whole = len(others) == x.owner.inputs[0].type.ndim - 1
    return is_whole and isinstance(last, slice) and all(i == slice(None) for i in others)


def _without_shared[Part: Signed | Factor](parts: list[Part], others: list[Part]) -> list[Part]:
    """Remove what two lists share from both, and return it."""
    shared = []
    for part in [*others]:
        if (same := next((x for x in parts if _is_same(x, part)), None)) is not None:
            others.remove(part)
            parts.remove(same)
            shared.append(part)
    return shared


def _is_same(part: Signed | Factor, other: Signed | Factor) -> bool:
    """Return whether two terms or factors are the same expression with the same sign or exponent."""
    return part[1] == other[1] and equal_computations([part.x], [other.x])


def _product(factors: list[Factor], like: TensorVariable) -> TensorVariable:
    """Return the product of factors in the dtype of ``like``."""
    one = constant(np.ones((1,) * like.type.ndim, dtype=like.type.dtype))
    return multiply_all([1 / x if is_inverse else x for x, is_inverse in factors] or [one])
