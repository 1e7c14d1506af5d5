"""Entries of a variable at constant positions, spelled as PyTensor has least to do with it."""

from collections.abc import Mapping, Sequence

import numpy as np
from pytensor.tensor.basic import constant
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.rewrites.rows.view.axes import moved


def take(
    x: TensorVariable, by_axis: Mapping[int, np.ndarray], rest: Sequence[int]
) -> TensorVariable:
    """Return ``x`` indexed by arrays on some axes: the axes of the arrays first, then ``rest``."""
    fixed = {a: int(p[0]) for a, p in by_axis.items() if p.ndim == 1 and (p == p[:1]).all()}
    if fixed and len(by_axis) - len(fixed) <= 1:
        return _take_one_position(x, by_axis, rest, fixed)
    in_front = moved(x, [*by_axis, *rest])
    first, *others = by_axis.values()
    if not others and _is_all(first, in_front.type.shape[0]):
        return in_front
    # As constants: PyTensor looks at each number of an index that is not yet a variable.
    return in_front[tuple(map(constant, by_axis.values()))]


def _take_one_position(
    x: TensorVariable,
    by_axis: Mapping[int, np.ndarray],
    rest: Sequence[int],
    fixed: Mapping[int, int],
) -> TensorVariable:
    """Slice the axes on which all rows are at one position, and take along the other, if any."""
    kept = [axis for axis in range(x.type.ndim) if axis not in fixed]
    sliced = x[tuple(fixed.get(axis, slice(None)) for axis in range(x.type.ndim))]
    rest_of_sliced = [kept.index(axis) for axis in rest]
    other = {kept.index(axis): p for axis, p in by_axis.items() if axis not in fixed}
    if other:
        return take(sliced, other, rest_of_sliced)
    return moved(sliced, ["x", *rest_of_sliced])


def _is_all(positions: np.ndarray, length: int | None) -> bool:
    """Return whether these are all the positions there are, in order."""
    return positions.shape == (length,) and bool((positions == np.arange(len(positions))).all())
