"""Parse advanced indexing ``x[.., g, h, ..]`` with constant index arrays into positions axis by axis."""

from collections.abc import Hashable, Mapping
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorConstant

from pymc_fastlogp.analysis.constants import broadcast

# Ops that select entries of their first input: a property of every entry holds for the result, too.
SELECTIONS = DimShuffle, AdvancedSubtensor, Subtensor

type Where = Mapping[int, int | np.ndarray]


class _ArrayKey:
    """An array as a dictionary key, compared by identity. The key holds a reference, so that the id is not reused."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ArrayKey) and self.array is other.array

    def __hash__(self) -> int:
        return id(self.array)


def position_key(position: int | np.ndarray) -> Hashable:
    """Return a key of the position on an axis: one number for all rows, or the identity of the array."""
    if isinstance(position, int):
        return position
    # The number of axes tells this key from an int, which is the number of an axis of the grid.
    return (position.ndim, position.item()) if position.size == 1 else _ArrayKey(position)


class Gather(NamedTuple):
    """Indexing of adjacent axes of ``x``, the table, by arrays that are broadcast together.

    In the result, the axes of the arrays replace the indexed axes of the table.

    Attributes
    ----------
    arrays : dict
        The index array of each indexed axis.
    ndim : int
        Number of axes of each index array.
    table_ndim : int
        Number of axes of the table.
    """

    arrays: dict[int, np.ndarray]
    ndim: int
    table_ndim: int

    @property
    def first(self) -> int:
        """Return the first indexed axis, which is also the first axis of the arrays in the result."""
        return min(self.arrays)

    def of_arrays(self, where: Where) -> dict[int, int | np.ndarray]:
        """Return the positions on axes of the arrays, numbered by the axes of the arrays."""
        inside = range(self.first, self.first + self.ndim)
        return {axis - self.first: p for axis, p in where.items() if axis in inside}

    def of_table(self, where: Where) -> dict[int, int | np.ndarray]:
        """Return the positions on axes that are not indexed, numbered by the axes of the table."""
        return {
            table_axis: where[axis]
            for axis, table_axis in self._axes_of_table().items()
            if axis in where
        }

    def arrangement(self, where: Where) -> list[int]:
        """Return the permutation from rows, axes of the arrays and axes of the table to the order of the result.

        Axes in ``where`` are left out.
        """
        of_table = self._axes_of_table()
        rest = [axis for axis in range(self._result_ndim) if axis not in where]
        found = sorted(rest, key=lambda axis: axis in of_table)
        return [0, *(1 + found.index(axis) for axis in rest)]

    def _axes_of_table(self) -> dict[int, int]:
        """Map each axis of the result that is not indexed to its axis of the table."""
        shift = self.ndim - len(self.arrays)
        not_indexed = (axis for axis in range(self.table_ndim) if axis not in self.arrays)
        return {axis + (shift if axis > self.first else 0): axis for axis in not_indexed}

    @property
    def _result_ndim(self) -> int:
        return self.table_ndim - len(self.arrays) + self.ndim


def parse_gather(node: Apply) -> Gather | None:
    """Parse a node of ``AdvancedSubtensor``; return None if an index is not constant, not adjacent or out of bounds."""
    x, *entries = node.inputs
    indices = indices_from_subtensor(entries, node.op.idx_list)
    indexed = [axis for axis, index in enumerate(indices) if index != slice(None)]
    if indexed != list(range(indexed[0], indexed[-1] + 1)):
        return None
    if not all(_is_constant_array(indices[axis]) for axis in indexed):
        return None
    # PyTensor raises the IndexError when the function is called, as it does for shapes that do not broadcast.
    if not all(_is_within(indices[axis].data, x.type.shape[axis]) for axis in indexed):
        return None
    try:
        arrays = broadcast(*(indices[axis].data for axis in indexed))
    except ValueError:
        return None
    return Gather(dict(zip(indexed, arrays)), arrays[0].ndim, x.type.ndim)


def _is_within(index: np.ndarray, length: int | None) -> bool:
    """Return whether all positions are within the axis; an unknown length passes."""
    if length is None or not index.size:
        return True
    return -length <= int(index.min()) and int(index.max()) < length


def _is_constant_array(index: object) -> bool:
    return isinstance(index, TensorConstant) and index.type.dtype != "bool"
