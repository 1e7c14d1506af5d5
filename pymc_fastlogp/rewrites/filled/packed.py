"""Matrices that were filled from vectors by sets at constant positions: which entry is where.

A triangle packed into a vector is the usual case. The rules that work on the vector instead of the
matrix (:mod:`~pymc_fastlogp.rewrites.filled.sum_of_filled`, :mod:`~pymc_fastlogp.rewrites.filled.diag_of_filled`)
ask here.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import alloc, constant
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import AdvancedIncSubtensor
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.writes import indices_of, positions, unwind

# Correlation matrices are smaller, also in most batches. Each position is listed, which takes memory and compile time.
MANY_ENTRIES = 100_000


class Packed(NamedTuple):
    """A tensor, or a scalar that is repeated, and the flat position of each entry in the matrix."""

    value: TensorVariable
    where: np.ndarray

    def as_vector(self) -> TensorVariable:
        """Return the value as a vector, one entry for each position."""
        if self._is_repeated():
            return self._repeated(self.where.size)
        return flattened(self.value)

    def listed(self) -> TensorVariable:
        """Return the entries in the order of their positions, or the scalar that stands at all of them."""
        return self.value if self._is_repeated() else flattened(self.value)

    def index_of(self, positions: np.ndarray) -> np.ndarray:
        """Return which entries stand at these positions, all of which have to be among its own."""
        order = np.argsort(self.where)
        return order[np.searchsorted(self.where, positions, sorter=order)]

    def at(self, positions: np.ndarray) -> TensorVariable:
        """Return what stands at these positions, in their shape."""
        if self._is_repeated():
            return self._repeated(*positions.shape)
        if self.value.type.shape == positions.shape and np.array_equal(
            positions.ravel(), self.where
        ):
            return self.value
        return flattened(self.value)[self.index_of(positions)]

    def _is_repeated(self) -> bool:
        return all(self.value.type.broadcastable) and self.value.type.shape != self.where.shape

    def _repeated(self, *shape: int) -> TensorVariable:
        return alloc(self.value.dimshuffle() if self.value.type.ndim else self.value, *shape)


class FilledMatrix(NamedTuple):
    """A matrix, or a batch of them, of known shape that is ``root`` where none of the entries, which are disjoint, is."""

    root: TensorVariable
    entries: tuple[Packed, ...]

    def holding(self, positions: np.ndarray) -> Packed | None:
        """Return the one of the entries that stands at all of these positions, None if there is none."""
        held = (entry for entry in self.entries if np.isin(positions, entry.where).all())
        return next(held, None)


def filled_matrix(fgraph: FunctionGraph, x: TensorVariable) -> FilledMatrix | None:
    """Return what ``x`` was filled from, if it is a matrix with vectors set into it, else None.

    Into a batch of matrices, tensors with a row for each of them may have been set instead.
    """
    if x.type.ndim < 2 or None in x.type.shape or _is_large_batch(x.type.shape):
        return None
    filled = unwind(fgraph, x)
    if filled is None or not all(_is_packed(write) for write in filled.writes):
        return None
    entries = []
    for write in filled.writes:
        where, value = positions(write), _as_stored(write.inputs[1], x.type.dtype)
        if where is None or value.type.dtype != x.type.dtype:
            return None
        if value.type.shape not in ((), (1,)) and not _has_size(value, where.size):
            return None
        entries.append(Packed(value, where))
    everywhere = np.concatenate([entry.where for entry in entries])
    if np.unique(everywhere).size < everywhere.size:
        return None
    return FilledMatrix(filled.root, tuple(entries))


def flattened(x: TensorVariable) -> TensorVariable:
    """Return a tensor of known shape as a vector."""
    return x if x.type.ndim == 1 else x.reshape((math.prod(x.type.shape),))


def without_dummies(x: TensorVariable) -> TensorVariable:
    """Return ``x`` without what adds dimensions of length one to it, or drops them."""
    while isinstance(x.owner_op, DimShuffle) and keeps_order(x.owner.op):
        [x] = x.owner.inputs
    return x


def keeps_order(op: DimShuffle) -> bool:
    """Whether dimensions are only added and dropped, so that the entries stay in their order."""
    return all(i < j for i, j in pairwise(op.shuffle))


def _is_large_batch(shape: tuple[int, ...]) -> bool:
    return len(shape) > 2 and math.prod(shape) > MANY_ENTRIES


def _has_size(x: TensorVariable, size: int) -> bool:
    return None not in x.type.shape and math.prod(x.type.shape) == size


def _is_packed(write: Apply) -> bool:
    """Whether a write is of a scalar, or has the axes of what it chooses, by index arrays if of a batch."""
    base, value = write.inputs[:2]
    if base.type.ndim > 2 and not isinstance(write.op, AdvancedIncSubtensor):
        return False
    chosen = base[indices_of(write)].type
    if not 1 <= chosen.ndim < base.type.ndim:
        return False
    is_scalar = value.type.ndim <= 1 and all(value.type.broadcastable)
    return is_scalar or value.type.ndim == chosen.ndim


def _as_stored(value: TensorVariable, dtype: str) -> TensorVariable:
    """Return a constant as a set casts it; what is not constant has a gradient, which a cast rounds."""
    if not isinstance(value, TensorConstant) or value.type.dtype == dtype:
        return value
    return constant(value.data.astype(dtype))
