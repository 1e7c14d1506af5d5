"""Rearrange and index the axes of variables that have the rows as their first axis."""

from collections.abc import Mapping, Sequence

import numpy as np
from pytensor.tensor.basic import alloc, constant
from pytensor.tensor.variable import TensorConstant, TensorVariable


def arrange_axes(x: TensorVariable, order: Sequence[int | str]) -> TensorVariable:
    """Return ``x`` with its axes in this order, as :meth:`dimshuffle` does. A constant is rearranged at once."""
    if list(order) == list(range(x.type.ndim)):
        return x
    if not isinstance(x, TensorConstant):
        return x.dimshuffle(*order)
    kept = [axis for axis in order if axis != "x"]
    dropped = [axis for axis in range(x.type.ndim) if axis not in kept]
    data = x.data.transpose([*kept, *dropped]).reshape([x.data.shape[axis] for axis in kept])
    return constant(data[tuple(np.newaxis if axis == "x" else slice(None) for axis in order)])


def repeat_rows(x: TensorVariable, n_rows: int) -> TensorVariable:
    """Repeat a value that is the same in all rows, because a join does not broadcast."""
    if x.type.shape[0] != 1 or n_rows == 1:
        return x
    return alloc(x, n_rows, *(x.shape[axis] for axis in range(1, x.type.ndim)))


def row_positions(x: TensorVariable, n_rows: int, n_axes: int) -> np.ndarray:
    """Return positions on the first axis of ``x``, one per row: 0 to n - 1, or zeros if that axis has length one; ``n_axes`` axes of length one follow."""
    positions = np.zeros(n_rows, dtype=int) if x.type.shape[0] == 1 else np.arange(n_rows)
    return positions.reshape(-1, *(1,) * n_axes)


def normalize_axes(axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return axes without negative numbers."""
    return tuple(axis % ndim for axis in axes)


def take(
    x: TensorVariable, by_axis: Mapping[int, np.ndarray], rest: Sequence[int]
) -> TensorVariable:
    """Return ``x`` indexed by arrays on some axes: the axes of the arrays first, then ``rest``."""
    fixed = {a: int(p[0]) for a, p in by_axis.items() if p.ndim == 1 and (p == p[:1]).all()}
    if fixed and len(by_axis) - len(fixed) <= 1:
        return _take_one_position(x, by_axis, rest, fixed)
    in_front = arrange_axes(x, [*by_axis, *rest])
    first, *others = by_axis.values()
    if not others and (adjacent := _as_slice(first, in_front.type.shape[0])) is not None:
        return in_front if adjacent == slice(None) else in_front[adjacent]
    # Constants, because PyTensor converts an index that is no variable number by number.
    return in_front[tuple(map(constant, by_axis.values()))]


def _take_one_position(
    x: TensorVariable,
    by_axis: Mapping[int, np.ndarray],
    rest: Sequence[int],
    fixed: Mapping[int, int],
) -> TensorVariable:
    """Slice the axes on which all rows are at one position, and index the remaining axis, if any."""
    kept = [axis for axis in range(x.type.ndim) if axis not in fixed]
    sliced = x[tuple(fixed.get(axis, slice(None)) for axis in range(x.type.ndim))]
    rest_of_sliced = [kept.index(axis) for axis in rest]
    other = {kept.index(axis): p for axis, p in by_axis.items() if axis not in fixed}
    if other:
        return take(sliced, other, rest_of_sliced)
    return arrange_axes(sliced, ["x", *rest_of_sliced])


def _as_slice(positions: np.ndarray, length: int | None) -> slice | None:
    """Return ascending adjacent positions on an axis as a slice, None for others. The gradient of a slice is no scatter."""
    if length is None or positions.ndim != 1 or not len(positions):
        return None
    first, last = int(positions[0]), int(positions[-1])
    if not 0 <= first <= last < length or not np.array_equal(positions, np.arange(first, last + 1)):
        return None
    return slice(None) if len(positions) == length else slice(first, last + 1)
