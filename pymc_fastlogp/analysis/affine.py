"""Write expressions as a constant plus multiples of variables, so that two expressions can be subtracted."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.tensor.basic import constant
from pytensor.tensor.math import mul
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.algebra import add_all, split_sum
from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import in_type, is_made_by

# Bound on the depth of nested sums, because the walk is recursive.
DEEPEST = 20


class Affine(NamedTuple):
    """A constant plus multiples of variables."""

    constant: np.ndarray
    multiples: dict[TensorVariable, float]


def affine(x: TensorVariable) -> Affine:
    """Return ``x`` as a constant plus multiples of variables. Sums nested deeper than :data:`DEEPEST` count as variables."""

    @cache
    def walk(x: TensorVariable, depth: int) -> Affine:
        if isinstance(x, TensorConstant):
            return Affine(np.asarray(x.data, dtype="float64"), {})
        parts = _multiples(x) if depth < DEEPEST else []
        if not parts:
            return Affine(np.array(0.0), {x: 1.0})
        return _combined([(walk(part, depth + 1), by) for part, by in parts])

    return walk(x, 0)


def _multiples(x: TensorVariable) -> list[tuple[TensorVariable, float]]:
    """Return the terms of a sum, each with a constant factor; an empty list if ``x`` is no sum, or is of a narrow integer dtype that may overflow."""
    if x.type.dtype not in (*float_dtypes, "int64"):
        return []
    # Without casts, so that operands shared with another sum are equal. `as_variable` casts.
    if terms := split_sum(x, cast=False):
        return [(term, -1.0 if is_negative else 1.0) for term, is_negative in terms]
    factors = x.owner.inputs if is_made_by(x, ps.Mul) else []
    numbers = [number for factor in factors if (number := fill_value(factor)) is not None]
    if factors and len(numbers) == len(factors) - 1:
        [other] = [factor for factor in factors if fill_value(factor) is None]
        return [(other, float(np.prod(numbers)))]
    return []


def _combined(parts: Sequence[tuple[Affine, float]]) -> Affine:
    """Return a weighted sum."""
    number: np.ndarray = np.array(0.0)
    multiples: dict[TensorVariable, float] = {}
    for part, factor in parts:
        number = number + factor * part.constant
        for x, multiple in part.multiples.items():
            multiples[x] = multiples.get(x, 0.0) + factor * multiple
    return Affine(number, {x: multiple for x, multiple in multiples.items() if multiple})


def difference(above: Affine, below: Affine) -> Affine | None:
    """Return ``above - below``, None if ``below`` has other multiples, or if the constant would be rounded."""
    if any(above.multiples.get(x) != multiple for x, multiple in below.multiples.items()):
        return None
    rest = {x: by for x, by in above.multiples.items() if x not in below.multiples}
    with np.errstate(invalid="ignore", over="ignore"):
        number = np.asarray(above.constant - below.constant)
        again = below.constant + number
        is_exact = np.array_equal(again, above.constant + np.zeros_like(again))
    return Affine(number, rest) if is_exact else None


def as_variable(x: Affine, ndim: int, dtype: str) -> TensorVariable:
    """Return the expression as a variable with ``ndim`` axes, computed in a dtype."""
    number = x.constant.reshape((1,) * (ndim - x.constant.ndim) + x.constant.shape)
    multiples = [(in_type(part, dtype), by) for part, by in x.multiples.items()]
    parts = [part if by == 1 else mul(part, by) for part, by in multiples]
    if number.any() or not parts:
        parts.append(constant(number.astype(dtype)))
    return add_all(parts).astype(dtype)
