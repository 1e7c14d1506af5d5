"""Which entries of a vector of known length a constant index reads."""

from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorVariable


class VectorRead(NamedTuple):
    """``vector[positions]``, with positions counted from zero."""

    vector: TensorVariable
    positions: np.ndarray

    @property
    def is_permutation(self) -> bool:
        """Whether every entry of the vector is read once."""
        return np.array_equal(np.sort(self.positions), np.arange(self.vector.type.shape[0]))

    def reordered(self, order: np.ndarray) -> TensorVariable:
        """Return ``vector[positions[order]]``, as the vector itself where that reads it from end to end."""
        positions = self.positions[order]
        is_whole = np.array_equal(positions, np.arange(self.vector.type.shape[0]))
        return self.vector if is_whole else self.vector[positions]


def vector_read(x: TensorVariable) -> VectorRead | None:
    """Return what ``x`` reads if it is a vector, read by slices, numbers or a mask; else None."""
    if x.type.ndim != 1 or not isinstance(x.owner_op, Subtensor | AdvancedSubtensor):
        return None
    vector, *entries = x.owner.inputs
    if vector.type.ndim != 1 or vector.type.shape[0] is None:
        return None
    if not all(isinstance(entry, Constant) for entry in entries):
        return None
    index = indices_from_subtensor([entry.data for entry in entries], x.owner.op.idx_list)
    try:
        positions = np.arange(vector.type.shape[0])[tuple(index)]
    except IndexError:  # upstream raises it when the function is called
        return None
    return VectorRead(vector, positions)
