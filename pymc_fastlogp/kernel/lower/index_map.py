"""Index map of an index expression, for reads and writes alike, by NumPy's rules."""

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
    """The elements that an index expression selects.

    Attributes
    ----------
    shape : tuple of Size
        Of the result.
    source_index : callable
        Takes an index into the result, returns that into the source.
    is_unique : bool
        Whether no element is known to be selected twice.
    neighbors : Neighbors, optional
        How the elements follow each other, where they are selected by constants along one axis.
    """

    shape: tuple[Size, ...]
    source_index: Callable[[tuple[Expr, ...]], tuple[Expr, ...]]
    is_unique: bool
    neighbors: Neighbors | None


def index_map(context: Context, source: Array, indices: Sequence[slice | Array]) -> IndexMap:
    """Return what the indices of the leading axes select, and append checks of those that may be out of bounds.

    Bounds of slices are arrays without axes, or None.
    """
    padded = [*indices, *[slice(None)] * (source.ndim - len(indices))]
    slices = {
        axis: resolve(index, source.shape[axis])
        for axis, index in enumerate(padded)
        if isinstance(index, slice)
    }
    arrays = {axis: index for axis, index in enumerate(padded) if isinstance(index, Array)}
    positions = {
        axis: _position(context, index, source.shape[axis]) for axis, index in arrays.items()
    }
    together = broadcast_leading(context, (), *(p.shape for p in positions.values()))
    front = _place(list(arrays), list(slices))
    leading = [slices[axis].length for axis in list(slices)[:front]]
    trailing = [slices[axis].length for axis in list(slices)[front:]]

    def source_index(index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        inner = index[front : front + len(together)]
        along = iter((*index[:front], *index[front + len(together) :]))
        return tuple(
            _of_slice(slices[axis], next(along))
            if axis in slices
            else positions[axis].at(broadcast_index(positions[axis].shape, inner))
            for axis in range(source.ndim)
        )

    shape = (*leading, *together, *trailing)
    known = list(arrays.values())
    return IndexMap(shape, source_index, _is_unique(known), _neighbors(known))


def _place(arrays: list[int], slices: list[int]) -> int:
    """Return the number of sliced axes before those of the index arrays in the result.

    NumPy puts the axes of consecutive index arrays in their place, and others in front.
    """
    if not arrays or arrays[-1] - arrays[0] + 1 != len(arrays):
        return 0
    return sum(axis < arrays[0] for axis in slices)


def _of_slice(piece: Slice, index: Expr) -> Expr:
    return plus(piece.start, times(index, int64(piece.step)))


def _position(context: Context, index: Array, length: Size) -> Array:
    """Return the positions that an index array means: int64, not negative, in bounds."""
    if index.facts is None or not (isinstance(length, int) or _is_whole(index)):
        return _checked_position(context, index, length)
    low, high = index.facts.minimum, index.facts.maximum
    furthest = max(high, -low - 1)
    if not isinstance(length, int):
        is_longer = Compute(ps.lt, (Const(furthest, "int64"), length), "bool")
        context.require(is_longer, OUT_OF_BOUNDS)
    elif furthest >= length:
        # It will raise. What is compiled without us would read past the end: upstream's code for Numba checks no index.
        return _checked_position(context, index, length)
    if low >= 0:
        return Array(index.shape, "int64", lambda i: _widened(index.at(i)))
    return Array(index.shape, "int64", lambda i: _wrapped(_widened(index.at(i)), length))


def _is_whole(index: Array) -> bool:
    """Return whether an array has all the elements that its facts are about; a view may leave out the largest."""
    assert index.facts is not None
    return index.facts.is_unique or index.data is not None or index.buffer is not None


def _widened(constant: Expr) -> Expr:
    """Return an element of a constant index as int64, that of a range without the detour."""
    if isinstance(constant, Compute) and isinstance(constant.op, Cast):
        [original] = constant.args
        if original.dtype == "int64":
            return original
    return cast(constant, "int64")


def _checked_position(context: Context, index: Array, length: Size) -> Array:
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
    """Return how the positions follow each other that one index array means; not known of several.

    A negative number and the positive one of the same position would look different.
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
