"""Checks that no load or store leaves its buffer, for tests: ``PYMC_FASTLOGP_CHECK_BOUNDS=1``.

The bytes of a buffer of lengths ``n`` and strides ``s`` (in bytes) are those from its lowest element to its highest one,

.. code-block:: text

    low  = sum of min(0, (n - 1) s)        high = sum of max(0, (n - 1) s) + bytes of an element

from the first element, and none where a length is zero. Before each load and store, the bytes of all lanes that touch memory are compared with them;
where one is outside, the name of the buffer goes to standard error and the process is trapped: it is the compiler that is wrong, and what it
would compute from there on is worth nothing. Operands of BLAS and LAPACK are not looked at, nor tables of functions.
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
    """An array whose loads and stores are checked.

    Attributes
    ----------
    name : str
        Of the buffer.
    low, n_bytes : llvmlite.ir.Value
        Bytes from the first element to the lowest one, and of all elements.
    """

    name: str
    low: ir.Value
    n_bytes: ir.Value


def bounded(builder: ir.IRBuilder, array: Array, lengths: Sequence[Number], name: str) -> Bounded:
    """Return an array of these lengths with its bounds."""
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
    """Append a trap where lanes leave an array.

    Parameters
    ----------
    builder : llvmlite.ir.IRBuilder
        Where the load or store comes next.
    array : Array
        It is not checked unless it is bounded.
    address : llvmlite.ir.Value
        Of the first of ``width`` neighbors, or a vector of one address for each lane.
    width : int
        Lanes.
    mask : Mask, optional
        The lanes that touch memory.
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
    text = bytearray(f"pymc_fastlogp: a kernel leaves its buffer {name}\0".encode())
    content = ir.Constant(ir.ArrayType(I8, len(text)), text)
    message = private_constant(module, f"outside.{name}", content)
    says = declared(module, "perror", ir.FunctionType(ir.VoidType(), [POINTER]))
    trap = declared(module, "llvm.trap", ir.FunctionType(ir.VoidType(), []))
    with builder.if_then(builder.not_(truth), likely=False):
        builder.call(says, [message])
        builder.call(trap, [])
