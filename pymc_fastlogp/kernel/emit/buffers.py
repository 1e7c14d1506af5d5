"""Storage of a kernel's buffers: registers, stack or heap.

Inputs and outputs are arguments of the function, constants are part of its module. Scratch is on the stack up
to :data:`STACK_BYTES`, the smallest buffers first; buffers that are larger, or whose size is known only when
the kernel is called, are allocated on entry and freed on every exit. What only loops with a condition use, and no condition reads, for instance those
for the rare case that a check fails, is allocated by the first of them that runs, and what a part of a long program shares with later ones all at once: the C library may give
freed memory back to the system, and then each call of the kernel would pay for new pages. A size that no integer holds ends the kernel
as one for which there is no memory.
Scratch and constants are aligned to cache lines.
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

# A part of the stack of a thread, of which some systems give half a megabyte (``python -m benchmarks.limits``).
STACK_BYTES = 1 << 16
# More than any address space has, so ``malloc`` gives null for it. A sum of two of them is still right as an unsigned integer.
TOO_LARGE = 1 << 62


def contiguous(
    builder: ir.IRBuilder, pointer: ir.Value, buffer: Buffer, lengths: Sequence[Number]
) -> Array:
    """Return a buffer in C order as an array."""
    strides: list[Number] = []
    stride: Number = 1
    for length in reversed(lengths):
        strides.insert(0, stride)
        stride = times(builder, stride, length)
    return Array(pointer, buffer.dtype, memory_type(buffer.dtype), tuple(strides))


def strided(pointer: ir.Value, buffer: Buffer, strides: Sequence[ir.Value]) -> Array:
    """Return a buffer with strides in bytes as an array."""
    return Array(pointer, buffer.dtype, I8, tuple(strides))


def constant(module: ir.Module, name: str, buffer: Buffer) -> ir.Value:
    """Return a pointer to a buffer whose content is part of the module."""
    content = ir.Constant(ir.ArrayType(I8, len(buffer.data)), bytearray(buffer.data))
    variable = private_constant(module, name, content)
    variable.align = ALIGNMENT
    return variable


def on_stack(buffers: Sequence[Buffer]) -> set[Buffer]:
    """Return the scratch buffers that are on the stack."""
    static = [b for b in buffers if all(isinstance(n, int) for n in b.shape)]
    free, chosen = STACK_BYTES, set()
    for buffer in sorted(static, key=_n_bytes):
        free -= _n_bytes(buffer)
        if free >= 0:
            chosen.add(buffer)
    return chosen


def stack(builder: ir.IRBuilder, buffer: Buffer) -> ir.Value:
    """Return a pointer to scratch on the stack."""
    n_elements = prod(n for n in buffer.shape if isinstance(n, int))
    return stack_variable(builder, ir.ArrayType(memory_type(buffer.dtype), n_elements))


def n_bytes(builder: ir.IRBuilder, buffer: Buffer, lengths: Sequence[Number]) -> Number:
    """Return what a buffer takes of an allocation, in whole cache lines, or :data:`TOO_LARGE`."""
    known = itemsize(buffer.dtype) * prod(n for n in lengths if isinstance(n, int))
    computed = [n for n in lengths if not isinstance(n, int)]
    if not computed:
        return min(-(-known // ALIGNMENT) * ALIGNMENT, TOO_LARGE)
    size, overflows = I64(min(known, TOO_LARGE)), I1(False)
    for length in computed:
        # With a negative length there is nothing to allocate, and a check that will say so.
        is_negative = builder.icmp_signed("<", length, I64(0))
        product = builder.smul_with_overflow(size, builder.select(is_negative, I64(0), length))
        size = builder.extract_value(product, 0)
        overflows = builder.or_(overflows, builder.extract_value(product, 1))
    size = builder.select(overflows, I64(TOO_LARGE), _limited(builder, size))
    up = builder.add(size, I64(ALIGNMENT - 1))
    return builder.and_(up, I64(-ALIGNMENT))


def sum_of(builder: ir.IRBuilder, sizes: Sequence[Number]) -> Number:
    """Return what several buffers take, or :data:`TOO_LARGE`."""
    total: Number = min(sum(n for n in sizes if isinstance(n, int)), TOO_LARGE)
    for n in sizes:
        if not isinstance(n, int):
            total = _limited(builder, builder.add(as_i64(total), n))
    return total


def _limited(builder: ir.IRBuilder, size: ir.Value) -> ir.Value:
    """Return a size of which none is larger than :data:`TOO_LARGE`; it may be the sum of two, which is below 0 then."""
    is_too_large = builder.icmp_unsigned(">", size, I64(TOO_LARGE))
    return builder.select(is_too_large, I64(TOO_LARGE), size)


def allocate(builder: ir.IRBuilder, size: Number) -> ir.Value:
    """Return what ``malloc`` gives for scratch of a size in bytes, perhaps null."""
    malloc = declared(builder.module, "malloc", ir.FunctionType(POINTER, [I64]))
    malloc.return_value.add_attribute("noalias")
    return builder.call(malloc, [builder.add(as_i64(size), I64(ALIGNMENT))])


def aligned(builder: ir.IRBuilder, allocated: ir.Value) -> ir.Value:
    """Return the first cache line of what was allocated."""
    past = builder.gep(allocated, [I64(ALIGNMENT - 1)], source_etype=I8)
    # Unlike arithmetic on the address as an integer, this keeps what LLVM knows of aliases.
    signature = ir.FunctionType(POINTER, [POINTER, I64])
    ptrmask = declared(builder.module, "llvm.ptrmask.p0.i64", signature)
    return builder.call(ptrmask, [past, I64(-ALIGNMENT)])


def free(builder: ir.IRBuilder, allocated: Sequence[ir.Value]) -> None:
    """Free what ``malloc`` gave."""
    function = declared(builder.module, "free", ir.FunctionType(ir.VoidType(), [POINTER]))
    for pointer in allocated:
        builder.call(function, [pointer])


def _n_bytes(buffer: Buffer) -> int:
    return itemsize(buffer.dtype) * prod(n for n in buffer.shape if isinstance(n, int))
