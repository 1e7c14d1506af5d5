"""Positions that ``x[.., g, h, ..]`` with constant index arrays reads, axis by axis."""

from collections.abc import Hashable, Mapping
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorConstant

from pymc_fastlogp.analysis.constants import broadcast

# Ops whose result is entries of their first input: what is so of each entry is so of what they give.
MOVES = DimShuffle, AdvancedSubtensor, Subtensor

type Where = Mapping[int, int | np.ndarray]


class _Same:
    """An array as a key, equal to itself alone. The key keeps it, so that no other array gets its address."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.array is other.array

    def __hash__(self) -> int:
        return id(self.array)


def position_key(position: int | np.ndarray) -> Hashable:
    """Return what is equal for the same position of an axis: a number that all rows share, or the array itself."""
    if isinstance(position, int):
        return position
    # With its axes, so that it is not taken for the number of an axis of the grid.
    return (position.ndim, position.item()) if position.size == 1 else _Same(position)


class Gather(NamedTuple):
    """Indexing of neighboring axes of ``x``, the table, by arrays that are broadcast together.

    The axes of the result are those of the table, with the axes of the arrays in the place of the
    axes that they index.

    Attributes
    ----------
    arrays : dict
        For each axis that is indexed its array.
    ndim : int
        How many axes each of the arrays has.
    table_ndim : int
        How many axes the table has.
    """

    arrays: dict[int, np.ndarray]
    ndim: int
    table_ndim: int

    @property
    def first(self) -> int:
        """Return the first axis that is indexed, and the first of the result that an array has."""
        return min(self.arrays)

    def of_arrays(self, where: Where) -> dict[int, int | np.ndarray]:
        """Return that part of ``where`` which is about axes of the arrays, in their numbers."""
        inside = range(self.first, self.first + self.ndim)
        return {axis - self.first: p for axis, p in where.items() if axis in inside}

    def of_table(self, where: Where) -> dict[int, int | np.ndarray]:
        """Return that part of ``where`` which is about axes that are not indexed."""
        return {
            table_axis: where[axis]
            for axis, table_axis in self._axes_of_table().items()
            if axis in where
        }

    def arrangement(self, where: Where) -> list[int]:
        """Return how to order the rows, the axes of the arrays, and those of the table.

        Each without those in ``where``, and into the order of the result.
        """
        of_table = self._axes_of_table()
        rest = [axis for axis in range(self._result_ndim) if axis not in where]
        found = sorted(rest, key=lambda axis: axis in of_table)
        return [0, *(1 + found.index(axis) for axis in rest)]

    def _axes_of_table(self) -> dict[int, int]:
        """Return for each axis of the result that is no axis of an array which of the table it is."""
        shift = self.ndim - len(self.arrays)
        not_indexed = (axis for axis in range(self.table_ndim) if axis not in self.arrays)
        return {axis + (shift if axis > self.first else 0): axis for axis in not_indexed}

    @property
    def _result_ndim(self) -> int:
        return self.table_ndim - len(self.arrays) + self.ndim


def parse_gather(node: Apply) -> Gather | None:
    """Return what a node of ``AdvancedSubtensor`` reads, or None where that is not known, or is not there."""
    x, *entries = node.inputs
    indices = indices_from_subtensor(entries, node.op.idx_list)
    indexed = [axis for axis, index in enumerate(indices) if index != slice(None)]
    if indexed != list(range(indexed[0], indexed[-1] + 1)):
        return None
    if not all(_is_constant_array(indices[axis]) for axis in indexed):
        return None
    # As for lengths that do not fit: upstream raises it when the function is called.
    if not all(_is_within(indices[axis].data, x.type.shape[axis]) for axis in indexed):
        return None
    try:
        arrays = broadcast(*(indices[axis].data for axis in indexed))
    except ValueError:
        return None
    return Gather(dict(zip(indexed, arrays)), arrays[0].ndim, x.type.ndim)


def _is_within(index: np.ndarray, length: int | None) -> bool:
    """Return whether an axis has all these positions, if its length is known."""
    if length is None or not index.size:
        return True
    return -length <= int(index.min()) and int(index.max()) < length


def _is_constant_array(index: object) -> bool:
    return isinstance(index, TensorConstant) and index.type.dtype != "bool"
