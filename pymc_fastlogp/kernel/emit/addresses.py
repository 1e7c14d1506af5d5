"""Memory addresses of the elements of a buffer."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from llvmlite import ir

from pymc_fastlogp.kernel.llvm import I64, POINTER, Number, as_i64, is_vector, splat, times
from pymc_fastlogp.kernel.scalars import memory_type


@dataclass(frozen=True, eq=False)
class Array:
    """An array in memory: a pointer and strides.

    Attributes
    ----------
    pointer : llvmlite.ir.Value
        Address of the first element.
    dtype : str
        Type of the elements.
    unit : llvmlite.ir.Type
        Unit of the strides: an element, or a byte for an input that need not be contiguous.
    strides : tuple of int or llvmlite.ir.Value
        Stride of each axis; an int if it is static.
    """

    pointer: ir.Value
    dtype: str
    unit: ir.Type
    strides: tuple[Number, ...]

    @property
    def element(self) -> ir.Type:
        """The type of an element in memory."""
        return memory_type(self.dtype)

    def step(self, slopes: Sequence[int | None]) -> int | None:
        """Return the distance from lane to lane in elements, None if it is not constant.

        ``slopes`` are the increments of the index of each axis from lane to lane, None if not constant.
        """
        moving = [(slope, stride) for slope, stride in zip(slopes, self.strides) if slope != 0]
        if not moving:
            return 0
        if self.unit is not self.element:
            return None
        total = 0
        for slope, stride in moving:
            if slope is None or not isinstance(stride, int):
                return None
            total += slope * stride
        return total

    def address(self, builder: ir.IRBuilder, index: Sequence[Number]) -> ir.Value:
        """Return the address of an element, a vector of addresses if an index is a vector."""
        terms = list(zip(index, self.strides))
        common = [(i, stride) for i, stride in terms if not is_vector(i)]
        by_lane = [_times_lanes(builder, i, stride) for i, stride in terms if is_vector(i)]
        address = builder.gep(self.pointer, [_total(builder, common)], source_etype=self.unit)
        if not by_lane:
            return address
        offsets = reduce(builder.add, by_lane)
        addresses = builder.gep(address, [offsets], source_etype=self.unit)
        # llvmlite gives the result of every `gep` the type of the base pointer.
        addresses.type = ir.VectorType(POINTER, offsets.type.count)
        return addresses


def _times_lanes(builder: ir.IRBuilder, lanes: ir.Value, stride: Number) -> ir.Value:
    """Return the product of a vector and a stride."""
    if stride == 1:
        return lanes
    return builder.mul(lanes, splat(builder, as_i64(stride), lanes.type.count))


def _total(builder: ir.IRBuilder, terms: Sequence[tuple[Number, Number]]) -> ir.Value:
    """Return the sum of the products of indices and strides."""
    products = [times(builder, i, stride) for i, stride in terms]
    known = sum(n for n in products if isinstance(n, int))
    summands = [n for n in products if not isinstance(n, int)]
    if known or not summands:
        summands.append(I64(known))
    return reduce(builder.add, summands)
