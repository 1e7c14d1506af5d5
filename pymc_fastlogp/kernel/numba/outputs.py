"""The outputs of a kernel in Numba: a function that allocates them and calls the machine code, and the arrays around them.

The function is called, not inlined. What is left at the place of the call is so short that LLVM inlines it into whatever called
the compiled graph, which then sees that a length is a number. nutpie copies the gradient by ``out[...] = gradient``, for which Numba
takes the remainder of each index by the length, to broadcast: a division for each parameter, unless the length is known to be
that of ``out``, when it becomes a copy of vectors.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.np import arrayobj

from pymc_fastlogp.kernel.emit import OUT_OF_MEMORY

# The status of a call where there is no machine code.
NO_CODE = OUT_OF_MEMORY - 1
I1, I64, POINTER = ir.IntType(1), ir.IntType(64), ir.PointerType()
MEMORY = types.MemInfoPointer(types.voidptr)


class Output(NamedTuple):
    """An array in C order, to be allocated.

    Attributes
    ----------
    type : numba.types.Array
        Its type.
    shape, strides : sequence of llvmlite.ir.Value
        For each axis.
    size : llvmlite.ir.Value
        Bytes of all elements.
    is_too_large : llvmlite.ir.Value
        Whether the size is more than an integer holds.
    """

    type: types.Array
    shape: Sequence[ir.Value]
    strides: Sequence[ir.Value]
    size: ir.Value
    is_too_large: ir.Value


def output_of(context: Any, builder: ir.IRBuilder, type_: types.Array, shape: Any) -> Output:
    """Return an output of some shape."""
    strides: list[ir.Value] = []
    size, is_too_large = I64(arrayobj.get_itemsize(context, type_)), I1(0)
    for length in reversed(shape):
        strides.insert(0, size)
        product = builder.smul_with_overflow(size, length)
        size = builder.extract_value(product, 0)
        is_too_large = builder.or_(is_too_large, builder.extract_value(product, 1))
    return Output(type_, shape, strides, size, is_too_large)


def call_with_outputs(
    context: Any,
    builder: ir.IRBuilder,
    find: Callable[[ir.IRBuilder], ir.Value],
    inputs: Sequence[ir.Value],
    outputs: Sequence[Output],
) -> tuple[ir.Value, ir.Value]:
    """Allocate the outputs and call the machine code.

    Parameters
    ----------
    context : numba.core.base.BaseContext
        Of Numba.
    builder : llvmlite.ir.IRBuilder
        Where instructions go.
    find : callable
        Appends code that returns the address of the machine code as an integer, or 0.
    inputs : sequence of llvmlite.ir.Value
        Its arguments before the outputs.
    outputs : sequence of Output
        What is to be allocated.

    Returns
    -------
    status : llvmlite.ir.Value
        0, or why there are no outputs.
    slots : llvmlite.ir.Value
        Where the outputs are, see :func:`arrays_in`; nowhere unless the status is 0.
    """
    slots = cgutils.alloca_once(builder, ir.ArrayType(POINTER, len(outputs)))
    outlined = _outlined(context, builder, find, [x.type for x in inputs], len(outputs))
    sizes = [output.size for output in outputs]
    return builder.call(outlined, [slots, *inputs, *sizes]), slots


def arrays_in(
    context: Any, builder: ir.IRBuilder, outputs: Sequence[Output], slots: ir.Value
) -> list[ir.Value]:
    """Return the arrays of outputs that have been allocated."""
    places = (builder.gep(slots, [I64(0), I64(i)]) for i in range(len(outputs)))
    memory = [builder.load(place, typ=POINTER) for place in places]
    return [
        _array(context, builder, output, each) for output, each in zip(outputs, memory, strict=True)
    ]


def _array(context: Any, builder: ir.IRBuilder, output: Output, memory: ir.Value) -> ir.Value:
    elements = context.get_data_type(output.type.dtype).as_pointer()
    array = arrayobj.make_array(output.type)(context, builder)
    arrayobj.populate_array(
        array,
        data=builder.bitcast(context.nrt.meminfo_data(builder, memory), elements),
        shape=cgutils.pack_array(builder, output.shape, ty=I64),
        strides=cgutils.pack_array(builder, output.strides, ty=I64),
        itemsize=I64(arrayobj.get_itemsize(context, output.type)),
        meminfo=memory,
    )
    return array._getvalue()


def _outlined(
    context: Any,
    caller: ir.IRBuilder,
    find: Callable[[ir.IRBuilder], ir.Value],
    input_types: Sequence[ir.Type],
    n_outputs: int,
) -> ir.Function:
    """Return a function that allocates memory of some sizes, calls the machine code, and fills the slots."""
    type_ = ir.FunctionType(I64, [POINTER, *input_types, *[I64] * n_outputs])
    outlined = ir.Function(caller.module, type_, caller.module.get_unique_name("with_outputs"))
    outlined.linkage = "internal"
    outlined.attributes.add("noinline")
    slots, *others = outlined.args
    inputs, sizes = others[: len(input_types)], others[len(input_types) :]

    builder = ir.IRBuilder(outlined.append_basic_block())
    address = find(builder)
    _return_if(context, builder, cgutils.is_null(builder, address), I64(NO_CODE), [])
    align = context.get_preferred_array_alignment(types.float64)
    allocate = context.nrt.meminfo_alloc_aligned_unchecked
    memory = [allocate(builder, size, align) for size in sizes]
    is_missing = reduce(builder.or_, [cgutils.is_null(builder, each) for each in memory])
    _return_if(context, builder, is_missing, I64(OUT_OF_MEMORY), memory)
    elements = [context.nrt.meminfo_data(builder, each) for each in memory]
    pointers = [builder.bitcast(each, POINTER) for each in elements]
    kernel = ir.FunctionType(I64, [*input_types, *[POINTER] * n_outputs])
    function = builder.inttoptr(address, kernel.as_pointer())
    status = builder.call(function, [*inputs, *pointers])
    has_failed = builder.icmp_signed("!=", status, I64(0))
    _return_if(context, builder, has_failed, status, memory)
    for i, each in enumerate(memory):
        builder.store(each, builder.gep(slots, [I64(i)], source_etype=POINTER))
    builder.ret(I64(0))
    return outlined


def _return_if(
    context: Any,
    builder: ir.IRBuilder,
    condition: ir.Value,
    status: ir.Value,
    memory: Sequence[ir.Value],
) -> None:
    """Give the memory back and return where a condition holds."""
    with builder.if_then(condition, likely=False):
        for each in memory:
            context.nrt.decref(builder, MEMORY, each)
        builder.ret(status)
