"""Which entries of a tensor of known shape a constant index chooses."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

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
    if vector.type.ndim != 1:
        return None
    positions = chosen(vector.type.shape, x.owner.op.idx_list, entries)
    return None if positions is None else VectorRead(vector, positions)


def chosen(
    shape: Sequence[int | None], idx_list: Sequence[Any], entries: Sequence[TensorVariable]
) -> np.ndarray | None:
    """Return the flat positions that an index into a tensor chooses, None if they are not known.

    Parameters
    ----------
    shape
        Of the tensor.
    idx_list
        Of the Op that indexes.
    entries
        Its inputs that belong to the index, which have to be constant.
    """
    lengths = [n for n in shape if n is not None]
    if len(lengths) < len(shape) or not all(isinstance(entry, Constant) for entry in entries):
        return None
    index = indices_from_subtensor([entry.data for entry in entries], idx_list)
    try:
        return np.arange(math.prod(lengths)).reshape(lengths)[tuple(index)]
    except IndexError:  # upstream raises it when the function is called
        return None
