"""Matrices that were filled from vectors by sets at constant positions: which entry is where.

A triangle packed into a vector is the usual case. The rules that work on the vector instead of the
matrix (:mod:`~pymc_fastlogp.rewrites.sum_of_filled`, :mod:`~pymc_fastlogp.rewrites.diag_of_filled`)
ask here.
"""

from typing import NamedTuple

import numpy as np
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import alloc, constant
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.rewrites.set_chains import indices_of, positions, unwind


class Packed(NamedTuple):
    """A vector, or a scalar that is repeated, and the flat position of each entry in the matrix."""

    value: TensorVariable
    where: np.ndarray

    def as_vector(self) -> TensorVariable:
        """Return the value as a vector, one entry for each position."""
        if self.value.type.shape == self.where.shape:
            return self.value
        scalar = self.value.dimshuffle() if self.value.type.ndim else self.value
        return alloc(scalar, self.where.size)

    def index_of(self, positions: np.ndarray) -> np.ndarray:
        """Return which entries stand at these positions, all of which have to be among its own."""
        order = np.argsort(self.where)
        return order[np.searchsorted(self.where, positions, sorter=order)]

    def at(self, positions: np.ndarray) -> TensorVariable:
        """Return what stands at these positions."""
        index, vector = self.index_of(positions), self.as_vector()
        return vector if np.array_equal(index, np.arange(self.where.size)) else vector[index]


class FilledMatrix(NamedTuple):
    """A matrix of known shape that is ``root`` where none of the entries, which are disjoint, is."""

    root: TensorVariable
    entries: tuple[Packed, ...]

    def holding(self, positions: np.ndarray) -> Packed | None:
        """Return the one of the entries that stands at all of these positions, None if there is none."""
        held = (entry for entry in self.entries if np.isin(positions, entry.where).all())
        return next(held, None)


def filled_matrix(fgraph: FunctionGraph, x: TensorVariable) -> FilledMatrix | None:
    """Return what ``x`` was filled from, if it is a matrix with vectors set into it, else None."""
    if x.type.ndim != 2 or None in x.type.shape:
        return None
    filled = unwind(fgraph, x)
    if filled is None or any(write.inputs[1].type.ndim > 1 for write in filled.writes):
        return None
    entries = []
    for write in filled.writes:
        where, value = positions(write), _as_stored(write.inputs[1], x.type.dtype)
        if where is None or value.type.dtype != x.type.dtype:
            return None
        if write.inputs[0][indices_of(write)].type.ndim != 1:
            return None
        if value.type.shape not in ((), (1,), where.shape):
            return None
        entries.append(Packed(value, where))
    everywhere = np.concatenate([entry.where for entry in entries])
    if np.unique(everywhere).size < everywhere.size:
        return None
    return FilledMatrix(filled.root, tuple(entries))


def _as_stored(value: TensorVariable, dtype: str) -> TensorVariable:
    """Return a constant as a set casts it; what is not constant has a gradient, which a cast rounds."""
    if not isinstance(value, TensorConstant) or value.type.dtype == dtype:
        return value
    return constant(value.data.astype(dtype))
