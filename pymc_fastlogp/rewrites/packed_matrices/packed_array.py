"""Arrays that hold a fill value and the entries of a few smaller tensors, typically a triangle packed into a vector.

The rules of this package work on the smaller tensors instead of the array.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from pytensor.tensor.basic import alloc, constant
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.provenance import (
    Entries,
    Provenance,
    moved_inputs,
    provenance,
    slice_if_consecutive,
)

ALL = slice(None)
Index = tuple[slice | np.ndarray, ...]


class Packed(NamedTuple):
    """An array of known shape: ``entries`` at their positions, ``fill`` everywhere else."""

    fill: TensorVariable
    entries: tuple[Entries, ...]
    shape: tuple[int, ...]

    @property
    def n_written(self) -> int:
        """Number of positions without the fill."""
        return sum(entry.where.size for entry in self.entries)

    def as_sets(
        self,
        fill: TensorVariable | None = None,
        value: Callable[[Entries], TensorVariable] | None = None,
    ) -> TensorVariable:
        """Return the array as one set per tensor into the fill. ``fill`` and ``value`` replace what is written, if given."""
        x = alloc(self.fill if fill is None else fill, *self.shape)
        for entry in self.entries:
            x = x[self.place(entry)].set((value or self.value)(entry))
        return x

    def place(self, entry: Entries) -> Index:
        """Return the index of the entries, with :data:`ALL` for the axes of a batch whose matrices have the same positions."""
        if len(self.shape) == 1:
            return (slice_if_consecutive(entry.where),)
        *batch, n, m = self.shape
        first = entry.where[entry.where < n * m]
        of_all = np.arange(math.prod(batch))[:, None] * n * m + first
        is_own = is_scalar(entry) or (
            is_whole(entry) and entry.leaf.type.shape == (*batch, first.size)
        )
        if batch and is_own and np.array_equal(of_all.ravel(), entry.where):
            return *(ALL for _ in batch), *np.unravel_index(first, (n, m))
        return np.unravel_index(entry.where, self.shape)

    def value(self, entry: Entries) -> TensorVariable:
        """Return the value to set at the index of the entries."""
        is_of_batch = not is_scalar(entry) and self.place(entry)[0] is ALL
        return entry.leaf if is_of_batch else value_of(entry)


def packed(x: TensorVariable, found: Provenance | None = None) -> Packed | None:
    """Return ``x`` as a packed array; None if no value fills it, or if a tensor as large as ``x`` is among the entries."""
    if found is None and x.owner and not moved_inputs(x):
        return None
    found = found or provenance(x)
    if found is None or not found.is_lossless:
        return None
    entries = [*found.entries()]
    variables = [entry for entry in entries if not isinstance(entry.leaf, TensorConstant)]
    constants = [*_by_value(found.codes == 0, entries, x.type.dtype)]
    fills = [entry for entry in (*constants, *variables) if _is_repeated(entry, x.type.shape)]
    if not fills:
        return None
    # Zero is preferred: sums and products can skip it.
    fill = max(fills, key=lambda entry: (fill_value(entry.leaf) == 0, entry.where.size))
    rest = tuple(entry for entry in (*variables, *constants) if entry is not fill)
    if any(_is_as_large(entry.leaf, x) for entry in rest):
        return None
    # A scalar fill may have more axes than the array.
    number = fill.leaf if fill.leaf.type.ndim <= x.type.ndim else value_of(fill)
    return Packed(number, rest, x.type.shape)


def _is_as_large(leaf: TensorVariable, x: TensorVariable) -> bool:
    """Return whether a tensor has as many dimensions as the array, or is a vector of equal length."""
    return leaf.type.ndim >= max(x.type.ndim, 2) or leaf.type.shape == x.type.shape


def _is_repeated(entry: Entries, shape: tuple[int, ...]) -> bool:
    """Return whether the entries can be a fill: a scalar, or a row or a column at the positions where it broadcasts.

    A single position of a vector must hold a constant.
    """
    lengths = entry.leaf.type.shape
    if len(shape) == 1 and entry.where.size == 1:
        return isinstance(entry.leaf, TensorConstant)
    if is_scalar(entry):
        return True
    if len(lengths) != len(shape) or 1 not in lengths or not all(map(_broadcasts, lengths, shape)):
        return False
    numbers = np.broadcast_to(np.arange(math.prod(lengths)).reshape(lengths), shape)
    return np.array_equal(numbers.ravel()[entry.where], entry.which)


def _broadcasts(n: int, to: int) -> bool:
    return n in (1, to)


def _by_value(is_zero: np.ndarray, entries: list[Entries], dtype: str) -> Iterator[Entries]:
    """Yield zero, the most common other constant, and all other constants, with their positions."""
    constants = [entry for entry in entries if isinstance(entry.leaf, TensorConstant)]
    if is_zero.any():
        yield _constant_entries(np.zeros((), dtype), np.flatnonzero(is_zero))
    if not constants:
        return
    # A write casts its values.
    where = np.concatenate([e.where for e in constants])
    order = np.argsort(where)
    values = np.concatenate([e.leaf.data.ravel()[e.which].astype(dtype) for e in constants])[order]
    where = where[order]
    distinct, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    is_common = which == counts.argmax()
    yield _constant_entries(distinct[counts.argmax()], where[is_common])
    if not is_common.all():
        yield _constant_entries(values[~is_common], where[~is_common])


def _constant_entries(values: np.ndarray, where: np.ndarray) -> Entries:
    which = np.arange(where.size) if values.ndim else np.zeros(where.size, dtype=int)
    return Entries(constant(values), which, where)


def is_scalar(entry: Entries) -> bool:
    """Return whether all positions hold one number."""
    return entry.leaf.type.ndim == 0 or (
        all(entry.leaf.type.broadcastable) and entry.where.size > 1
    )


def value_of(entry: Entries) -> TensorVariable:
    """Return the entries as a vector in the order of their positions, or the scalar at all positions."""
    if is_scalar(entry):
        return entry.leaf.dimshuffle() if entry.leaf.type.ndim else entry.leaf
    vector = flattened(entry.leaf)
    return vector if is_whole(entry) else vector[slice_if_consecutive(entry.which)]


def array_of(entry: Entries, *shape: int) -> TensorVariable:
    """Return the entries in the order of their positions as an array of this shape; a scalar is broadcast."""
    value = value_of(entry)
    if value.type.ndim == 0:
        return alloc(value, *shape)
    if is_whole(entry) and entry.leaf.type.shape == shape:
        return entry.leaf
    return value if len(shape) == 1 else value.reshape(shape)


def is_whole(entry: Entries) -> bool:
    """Return whether each entry of the leaf has exactly one position, in order."""
    return np.array_equal(entry.which, np.arange(math.prod(entry.leaf.type.shape)))


def flattened(x: TensorVariable) -> TensorVariable:
    """Return a tensor of known shape as a vector."""
    return x if x.type.ndim == 1 else x.reshape((math.prod(x.type.shape),))
