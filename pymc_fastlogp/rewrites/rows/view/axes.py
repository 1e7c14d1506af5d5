"""Axes of what is computed at chosen rows, the first of which is that of the rows."""

from collections.abc import Sequence

import numpy as np
from pytensor.tensor.basic import alloc, constant
from pytensor.tensor.variable import TensorConstant, TensorVariable


def moved(x: TensorVariable, order: Sequence[int | str]) -> TensorVariable:
    """Return ``x`` with its axes in this order, as :meth:`dimshuffle` does, a constant at once."""
    if list(order) == list(range(x.type.ndim)):
        return x
    if not isinstance(x, TensorConstant):
        return x.dimshuffle(*order)
    kept = [axis for axis in order if axis != "x"]
    dropped = [axis for axis in range(x.type.ndim) if axis not in kept]
    data = x.data.transpose([*kept, *dropped]).reshape([x.data.shape[axis] for axis in kept])
    return constant(data[tuple(np.newaxis if axis == "x" else slice(None) for axis in order)])


def for_each_row(x: TensorVariable, n_rows: int) -> TensorVariable:
    """Repeat what is the same in all rows; a join does not broadcast."""
    if x.type.shape[0] != 1 or n_rows == 1:
        return x
    return alloc(x, n_rows, *(x.shape[axis] for axis in range(1, x.type.ndim)))


def own_positions(x: TensorVariable, n_rows: int, n_axes: int) -> np.ndarray:
    """Return where each row finds what is its own in ``x``, which has one row if all are the same; with so many axes added."""
    own = np.zeros(n_rows, dtype=int) if x.type.shape[0] == 1 else np.arange(n_rows)
    return own.reshape(-1, *(1,) * n_axes)


def from_first(axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return axes by their numbers from the first one; an Op may keep those from the last one, which are negative."""
    return tuple(axis % ndim for axis in axes)
