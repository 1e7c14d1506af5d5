"""Storage of a kernel's buffers: arguments, constants, stack or heap.

Inputs and outputs are arguments of the function. Constants are part of its module. Scratch buffers are placed as follows:

- on the stack, the smallest buffers first, up to :data:`STACK_BYTES` in total,
- on the heap otherwise, which includes all buffers whose size is known only at run time. Such memory is allocated on entry and freed on every exit.
- on the heap, allocated by the first loop that runs, for buffers that only conditional loops use and no condition reads.
  Such loops handle rare cases such as a failed check.

Lazily allocated buffers that several parts of a long program share are allocated together. Lazy allocation saves time in most calls, because the C
library may return freed memory to the operating system, and then every allocation causes page faults.

A size that overflows an integer ends the kernel with the status of a failed allocation. Scratch buffers and constants are aligned to cache lines.
"""

from collections.abc import Sequence
from math import prod

from llvmlite import ir

from pymc_fastlogp.kernel.emit.addresses import Array
from pymc_fastlogp.kernel.ir.expressions import Buffer, itemsize
from pymc_fastlogp.kernel.llvm import (
    ALIGNMENT,
    I1,
    I8,
    I64,
    POINTER,
    Number,
    as_i64,
    declared,
    private_constant,
    stack_variable,
    times,
)
from pymc_fastlogp.kernel.scalars import memory_type

# Small enough for threads with a stack of half a megabyte, as some systems have (``python -m benchmarks.limits``).
STACK_BYTES = 1 << 16
# Larger than any address space, so `malloc` returns null. The sum of two such sizes still fits an unsigned integer.
TOO_LARGE = 1 << 62


def contiguous(
    builder: ir.IRBuilder, pointer: ir.Value, buffer: Buffer, lengths: Sequence[Number]
) -> Array:
    """Return a C-contiguous buffer as an array."""
    strides: list[Number] = []
    stride: Number = 1
    for length in reversed(lengths):
        strides.insert(0, stride)
        stride = times(builder, stride, length)
    return Array(pointer, buffer.dtype, memory_type(buffer.dtype), tuple(strides))


def strided(pointer: ir.Value, buffer: Buffer, strides: Sequence[ir.Value]) -> Array:
    """Return a buffer as an array with strides in bytes."""
    return Array(pointer, buffer.dtype, I8, tuple(strides))


def constant(module: ir.Module, name: str, buffer: Buffer) -> ir.Value:
    """Return a pointer to a constant buffer, whose content becomes part of the module."""
    content = ir.Constant(ir.ArrayType(I8, len(buffer.data)), bytearray(buffer.data))
    variable = private_constant(module, name, content)
    variable.align = ALIGNMENT
    return variable


def on_stack(buffers: Sequence[Buffer]) -> set[Buffer]:
    """Select the scratch buffers to place on the stack."""
    static = [b for b in buffers if all(isinstance(n, int) for n in b.shape)]
    free, chosen = STACK_BYTES, set()
    for buffer in sorted(static, key=_n_bytes):
        free -= _n_bytes(buffer)
        if free >= 0:
            chosen.add(buffer)
    return chosen


def stack(builder: ir.IRBuilder, buffer: Buffer) -> ir.Value:
    """Return a pointer to a scratch buffer on the stack."""
    n_elements = prod(n for n in buffer.shape if isinstance(n, int))
    return stack_variable(builder, ir.ArrayType(memory_type(buffer.dtype), n_elements))


def n_bytes(builder: ir.IRBuilder, buffer: Buffer, lengths: Sequence[Number]) -> Number:
    """Return the bytes of a buffer, rounded up to whole cache lines, or :data:`TOO_LARGE`."""
    known = itemsize(buffer.dtype) * prod(n for n in lengths if isinstance(n, int))
    computed = [n for n in lengths if not isinstance(n, int)]
    if not computed:
        return min(-(-known // ALIGNMENT) * ALIGNMENT, TOO_LARGE)
    size, overflows = I64(min(known, TOO_LARGE)), I1(False)
    for length in computed:
        # A negative length needs no memory: a later check reports it.
        is_negative = builder.icmp_signed("<", length, I64(0))
        product = builder.smul_with_overflow(size, builder.select(is_negative, I64(0), length))
        size = builder.extract_value(product, 0)
        overflows = builder.or_(overflows, builder.extract_value(product, 1))
    size = builder.select(overflows, I64(TOO_LARGE), _limited(builder, size))
    up = builder.add(size, I64(ALIGNMENT - 1))
    return builder.and_(up, I64(-ALIGNMENT))


def sum_of(builder: ir.IRBuilder, sizes: Sequence[Number]) -> Number:
    """Return the sum of sizes, or :data:`TOO_LARGE`."""
    total: Number = min(sum(n for n in sizes if isinstance(n, int)), TOO_LARGE)
    for n in sizes:
        if not isinstance(n, int):
            total = _limited(builder, builder.add(as_i64(total), n))
    return total


def _limited(builder: ir.IRBuilder, size: ir.Value) -> ir.Value:
    """Clamp a size, or the sum of two clamped sizes, to :data:`TOO_LARGE`; the comparison is unsigned, as the sum may exceed the signed range."""
    is_too_large = builder.icmp_unsigned(">", size, I64(TOO_LARGE))
    return builder.select(is_too_large, I64(TOO_LARGE), size)


def allocate(builder: ir.IRBuilder, size: Number) -> ir.Value:
    """Append a call of ``malloc`` for a size in bytes plus alignment; the result may be null."""
    malloc = declared(builder.module, "malloc", ir.FunctionType(POINTER, [I64]))
    malloc.return_value.add_attribute("noalias")
    return builder.call(malloc, [builder.add(as_i64(size), I64(ALIGNMENT))])


def aligned(builder: ir.IRBuilder, allocated: ir.Value) -> ir.Value:
    """Return the address of the first whole cache line of an allocation."""
    past = builder.gep(allocated, [I64(ALIGNMENT - 1)], source_etype=I8)
    # Unlike integer arithmetic, `ptrmask` keeps the alias information of the pointer.
    signature = ir.FunctionType(POINTER, [POINTER, I64])
    ptrmask = declared(builder.module, "llvm.ptrmask.p0.i64", signature)
    return builder.call(ptrmask, [past, I64(-ALIGNMENT)])


def free(builder: ir.IRBuilder, allocated: Sequence[ir.Value]) -> None:
    """Append calls of ``free``."""
    function = declared(builder.module, "free", ir.FunctionType(ir.VoidType(), [POINTER]))
    for pointer in allocated:
        builder.call(function, [pointer])


def _n_bytes(buffer: Buffer) -> int:
    return itemsize(buffer.dtype) * prod(n for n in buffer.shape if isinstance(n, int))
