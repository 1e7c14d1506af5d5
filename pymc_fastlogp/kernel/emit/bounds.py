"""Bounds checks of every load and store, for tests: ``PYMC_FASTLOGP_CHECK_BOUNDS=1``.

A buffer of lengths ``n`` and strides ``s`` (in bytes) occupies the bytes ``[low, high)`` relative to its first element,

.. code-block:: text

    low  = sum of min(0, (n - 1) s)        high = sum of max(0, (n - 1) s) + bytes of an element

and no bytes if a length is zero. Before each load and store, the bytes of all active lanes are compared with this interval.
A violation is a bug of the compiler, and later results would be wrong. So the kernel writes the name of the buffer to standard error and traps.
Operands of BLAS and LAPACK, and tables of scalar functions, are not checked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from llvmlite import ir

from pymc_fastlogp.kernel.emit.addresses import Array
from pymc_fastlogp.kernel.ir.expressions import itemsize
from pymc_fastlogp.kernel.llvm import (
    I8,
    I64,
    POINTER,
    Number,
    as_i64,
    declared,
    is_vector,
    lane,
    private_constant,
)
from pymc_fastlogp.kernel.vecmath.vector import Mask


@dataclass(frozen=True, eq=False)
class Bounded(Array):
    """An array with bounds, whose loads and stores are checked.

    Attributes
    ----------
    name : str
        Name of the buffer.
    low : llvmlite.ir.Value
        Offset of the lowest byte from the first element, at most 0.
    n_bytes : llvmlite.ir.Value
        Number of bytes of all elements.
    """

    name: str
    low: ir.Value
    n_bytes: ir.Value


def bounded(builder: ir.IRBuilder, array: Array, lengths: Sequence[Number], name: str) -> Bounded:
    """Add bounds to an array of the given lengths."""
    zero, low, high, is_empty = I64(0), I64(0), I64(itemsize(array.dtype)), ir.IntType(1)(0)
    unit = 1 if array.unit is I8 else itemsize(array.dtype)
    for length, stride in zip(map(as_i64, lengths), map(as_i64, array.strides), strict=True):
        reach = builder.mul(builder.sub(length, I64(1)), builder.mul(stride, I64(unit)))
        is_back = builder.icmp_signed("<", reach, zero)
        low = builder.add(low, builder.select(is_back, reach, zero))
        high = builder.add(high, builder.select(is_back, zero, reach))
        is_empty = builder.or_(is_empty, builder.icmp_signed("<=", length, zero))
    n_bytes = builder.select(is_empty, zero, builder.sub(high, low))
    fields = {name: vars(array)[name] for name in ("pointer", "dtype", "unit", "strides")}
    return Bounded(**fields, name=name, low=low, n_bytes=n_bytes)


def require_inside(
    builder: ir.IRBuilder, array: Array, address: ir.Value, width: int, mask: Mask | None
) -> None:
    """Append a trap for lanes that access memory outside an array.

    Parameters
    ----------
    builder : llvmlite.ir.IRBuilder
        Builder positioned before the load or store.
    array : Array
        Only a :class:`Bounded` array is checked.
    address : llvmlite.ir.Value
        Address of the first of ``width`` neighbors, or a vector of one address per lane.
    width : int
        Number of lanes.
    mask : Mask, optional
        Lanes that access memory; all by default.
    """
    if not isinstance(array, Bounded):
        return
    lowest = builder.add(builder.ptrtoint(array.pointer, I64), array.low)
    size = itemsize(array.dtype)
    inside = []
    for k in range(width):
        own = lane(builder, address, k) if is_vector(address) else address
        first = builder.sub(builder.ptrtoint(own, I64), lowest)
        offset = first if is_vector(address) else builder.add(first, I64(k * size))
        is_inside = builder.and_(
            builder.icmp_signed(">=", offset, I64(0)),
            builder.icmp_signed("<=", builder.add(offset, I64(size)), array.n_bytes),
        )
        if mask is not None:
            is_inside = builder.or_(is_inside, builder.not_(lane(builder, mask.value, k)))
        inside.append(is_inside)
    _trap_unless(builder, reduce(builder.and_, inside), array.name)


def _trap_unless(builder: ir.IRBuilder, truth: ir.Value, name: str) -> None:
    module = builder.module
    text = bytearray(
        f"pymc_fastlogp: a kernel accesses memory outside its buffer {name}\0".encode()
    )
    content = ir.Constant(ir.ArrayType(I8, len(text)), text)
    message = private_constant(module, f"outside.{name}", content)
    says = declared(module, "perror", ir.FunctionType(ir.VoidType(), [POINTER]))
    trap = declared(module, "llvm.trap", ir.FunctionType(ir.VoidType(), []))
    with builder.if_then(builder.not_(truth), likely=False):
        builder.call(says, [message])
        builder.call(trap, [])
