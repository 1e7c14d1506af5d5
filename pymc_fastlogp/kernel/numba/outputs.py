"""The outputs of a kernel in Numba: a function that allocates them and calls the machine code, and the arrays around them.

The function is called, not inlined. The rest of the call is so short that LLVM inlines that rest into the function around the compiled graph. There the
lengths are constants: the assignment of the gradient in nutpie's callback needs no check of its shape, see
:mod:`pymc_fastlogp._upstream.numba_returned_arrays`.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from pymc_fastlogp._upstream.numba import Frame, cgutils
from pymc_fastlogp.kernel.emit import OUT_OF_MEMORY
from pymc_fastlogp.kernel.llvm import I1, I64, POINTER

# The status of a call where there is no machine code.
NO_CODE = OUT_OF_MEMORY - 1


class Output(NamedTuple):
    """An array in C order, to be allocated: its size is in bytes, and is too large if an integer does not hold it."""

    type: types.Array
    shape: Sequence[ir.Value]
    strides: Sequence[ir.Value]
    size: ir.Value
    is_too_large: ir.Value


def output_of(frame: Frame, type_: types.Array, shape: Any) -> Output:
    """Return an output of some shape."""
    strides: list[ir.Value] = []
    builder = frame.builder
    size, is_too_large = I64(frame.itemsize(type_)), I1(0)
    for length in reversed(shape):
        strides.insert(0, size)
        product = builder.smul_with_overflow(size, length)
        size = builder.extract_value(product, 0)
        is_too_large = builder.or_(is_too_large, builder.extract_value(product, 1))
    return Output(type_, shape, strides, size, is_too_large)


def call_with_outputs(
    frame: Frame,
    find: Callable[[Frame], ir.Value],
    inputs: Sequence[ir.Value],
    outputs: Sequence[Output],
) -> tuple[ir.Value, ir.Value]:
    """Allocate the outputs and call the machine code, whose address ``find`` appends, as an integer or 0.

    Returns
    -------
    status : llvmlite.ir.Value
        0, or why there are no outputs.
    slots : llvmlite.ir.Value
        Where the outputs are, see :func:`arrays_in`; nowhere unless the status is 0.
    """
    slots = cgutils.alloca_once(frame.builder, ir.ArrayType(POINTER, len(outputs)))
    outlined = _outlined(frame, find, [x.type for x in inputs], len(outputs))
    sizes = [output.size for output in outputs]
    return frame.builder.call(outlined, [slots, *inputs, *sizes]), slots


def arrays_in(frame: Frame, outputs: Sequence[Output], slots: ir.Value) -> list[ir.Value]:
    """Return the arrays of outputs that have been allocated."""
    places = (frame.builder.gep(slots, [I64(0), I64(i)]) for i in range(len(outputs)))
    memory = [frame.builder.load(place, typ=POINTER) for place in places]
    return [
        frame.array(output.type, frame.data_of(each), output.shape, output.strides, each)
        for output, each in zip(outputs, memory, strict=True)
    ]


def _outlined(
    caller: Frame,
    find: Callable[[Frame], ir.Value],
    input_types: Sequence[ir.Type],
    n_outputs: int,
) -> ir.Function:
    """Return a function that allocates memory of some sizes, calls the machine code, and fills the slots."""
    module = caller.builder.module
    type_ = ir.FunctionType(I64, [POINTER, *input_types, *[I64] * n_outputs])
    outlined = ir.Function(module, type_, module.get_unique_name("with_outputs"))
    outlined.linkage = "internal"
    outlined.attributes.add("noinline")
    slots, *others = outlined.args
    inputs, sizes = others[: len(input_types)], others[len(input_types) :]

    builder = ir.IRBuilder(outlined.append_basic_block())
    frame = caller.at(builder)
    address = find(frame)
    _return_if(frame, cgutils.is_null(builder, address), I64(NO_CODE), [])
    memory = [frame.allocate(size) for size in sizes]
    is_missing = reduce(builder.or_, [cgutils.is_null(builder, each) for each in memory])
    _return_if(frame, is_missing, I64(OUT_OF_MEMORY), memory)
    pointers = [frame.data_of(each) for each in memory]
    kernel = ir.FunctionType(I64, [*input_types, *[POINTER] * n_outputs])
    function = builder.inttoptr(address, kernel.as_pointer())
    status = builder.call(function, [*inputs, *pointers])
    _return_if(frame, builder.icmp_signed("!=", status, I64(0)), status, memory)
    for i, each in enumerate(memory):
        builder.store(each, builder.gep(slots, [I64(i)], source_etype=POINTER))
    builder.ret(I64(0))
    return outlined


def _return_if(
    frame: Frame, condition: ir.Value, status: ir.Value, memory: Sequence[ir.Value]
) -> None:
    """Give the memory back and return where a condition holds."""
    with frame.builder.if_then(condition, likely=False):
        for each in memory:
            frame.release(each)
        frame.builder.ret(status)
