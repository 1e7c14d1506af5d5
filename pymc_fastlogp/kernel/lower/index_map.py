"""The index map of an indexing expression, for reads and writes, by NumPy's rules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from pytensor import scalar as ps
from pytensor.scalar.basic import Cast

from pymc_fastlogp.analysis.constants import broadcast
from pymc_fastlogp.analysis.index_facts import Neighbors
from pymc_fastlogp.kernel.ir.arithmetic import ZERO, cast, int64, plus, switch, times, truth
from pymc_fastlogp.kernel.ir.expressions import Compute, Const, Expr, Size, as_expr
from pymc_fastlogp.kernel.ir.loops import Error
from pymc_fastlogp.kernel.lower.array import Array
from pymc_fastlogp.kernel.lower.broadcast import broadcast_index, broadcast_leading
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.lower.slices import Slice, resolve

OUT_OF_BOUNDS = Error(IndexError, "index out of bounds")


@dataclass(frozen=True)
class IndexMap:
    """The elements that an indexing expression selects.

    Attributes
    ----------
    shape : tuple of Size
        The shape of the result.
    source_index : callable
        Takes an index into the result, and returns the index into the source.
    is_unique : bool
        Whether every element is known to be selected at most once.
    neighbors : Neighbors, optional
        The order of the selected positions, if a single constant index array selects them.
    """

    shape: tuple[Size, ...]
    source_index: Callable[[tuple[Expr, ...]], tuple[Expr, ...]]
    is_unique: bool
    neighbors: Neighbors | None


def index_map(context: Context, source: Array, indices: Sequence[slice | Array]) -> IndexMap:
    """Return the index map of indices of the leading axes, and append checks of indices that may be out of bounds.

    Bounds of slices are 0-d arrays or None.
    """
    padded = [*indices, *[slice(None)] * (source.ndim - len(indices))]
    slices = {
        axis: resolve(index, source.shape[axis])
        for axis, index in enumerate(padded)
        if isinstance(index, slice)
    }
    arrays = {axis: index for axis, index in enumerate(padded) if isinstance(index, Array)}
    positions = {
        axis: _positions(context, index, source.shape[axis]) for axis, index in arrays.items()
    }
    together = broadcast_leading(context, (), *(p.shape for p in positions.values()))
    front = _sliced_axes_before(list(arrays), list(slices))
    leading = [slices[axis].length for axis in list(slices)[:front]]
    trailing = [slices[axis].length for axis in list(slices)[front:]]

    def source_index(index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        inner = index[front : front + len(together)]
        along = iter((*index[:front], *index[front + len(together) :]))
        return tuple(
            _position_in_slice(slices[axis], next(along))
            if axis in slices
            else positions[axis].at(broadcast_index(positions[axis].shape, inner))
            for axis in range(source.ndim)
        )

    shape = (*leading, *together, *trailing)
    index_arrays = list(arrays.values())
    return IndexMap(shape, source_index, _is_unique(index_arrays), _neighbors(index_arrays))


def _sliced_axes_before(arrays: list[int], slices: list[int]) -> int:
    """Return the number of sliced axes that precede the axes of the index arrays in the result.

    NumPy keeps the place of adjacent index arrays, and moves the axes of separated index arrays to the front.
    """
    if not arrays or arrays[-1] - arrays[0] + 1 != len(arrays):
        return 0
    return sum(axis < arrays[0] for axis in slices)


def _position_in_slice(piece: Slice, index: Expr) -> Expr:
    return plus(piece.start, times(index, int64(piece.step)))


def _positions(context: Context, index: Array, length: Size) -> Array:
    """Return the positions of an index array as int64, non-negative and in bounds."""
    if index.facts is None or not (isinstance(length, int) or _is_whole(index)):
        return _checked_positions(context, index, length)
    low, high = index.facts.minimum, index.facts.maximum
    furthest = max(high, -low - 1)
    if not isinstance(length, int):
        is_longer = Compute(ps.lt, (Const(furthest, "int64"), length), "bool")
        context.require(is_longer, OUT_OF_BOUNDS)
    elif furthest >= length:
        # The check will fail, unlike in upstream's Numba code, which reads out of bounds.
        return _checked_positions(context, index, length)
    if low >= 0:
        return Array(index.shape, "int64", lambda i: _widened(index.at(i)))
    return Array(index.shape, "int64", lambda i: _wrapped(_widened(index.at(i)), length))


def _is_whole(index: Array) -> bool:
    """Return whether an array has all elements that its facts describe; a view may lack the largest one."""
    assert index.facts is not None
    return index.facts.is_unique or index.data is not None or index.buffer is not None


def _widened(constant: Expr) -> Expr:
    """Return an element of a constant index array as int64; a narrowed element of a range is used before its cast."""
    if isinstance(constant, Compute) and isinstance(constant.op, Cast):
        [original] = constant.args
        if original.dtype == "int64":
            return original
    return cast(constant, "int64")


def _checked_positions(context: Context, index: Array, length: Size) -> Array:
    position = Array(index.shape, "int64", lambda i: _wrapped(cast(index.at(i), "int64"), length))

    def is_in_bounds(i: tuple[Expr, ...]) -> Expr:
        at = position.at(i)
        not_low = truth(ps.ge, at, ZERO)
        not_high = truth(ps.lt, at, as_expr(length))
        return truth(ps.and_, not_low, not_high)

    context.check(index.shape, is_in_bounds, OUT_OF_BOUNDS)
    return position


def _wrapped(position: Expr, length: Size) -> Expr:
    if isinstance(position, Const) and isinstance(length, int):
        return int64(position.value + length * (position.value < 0))
    is_negative = truth(ps.lt, position, ZERO)
    return switch(is_negative, plus(position, as_expr(length)), position)


def _neighbors(arrays: list[Array]) -> Neighbors | None:
    """Return the order of the positions of a single index array, None if unknown.

    Negative indices are excluded: a negative and a positive index can be the same position.
    """
    if len(arrays) != 1 or arrays[0].facts is None or arrays[0].facts.minimum < 0:
        return None
    return arrays[0].facts.neighbors


def _is_unique(arrays: list[Array]) -> bool:
    if all(array.ndim == 0 for array in arrays):
        return True
    if len(arrays) == 1 and arrays[0].facts is not None:
        return arrays[0].facts.is_unique and arrays[0].facts.minimum >= 0
    data = [array.data for array in arrays]
    if any(values is None or values.min(initial=0) < 0 for values in data):
        return False
    together = np.stack([values.ravel() for values in broadcast(*data)])  # type: ignore[arg-type]
    return np.unique(together, axis=1).shape == together.shape
