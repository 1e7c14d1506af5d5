"""Outputs of a kernel in Numba: allocation, the call of the machine code, and the arrays around the results.

Allocation and call are in a function that is not inlined. The code at the call site is then so short that LLVM inlines it into the caller of
the compiled graph, where the lengths of the outputs become constants. So the assignment of the gradient in the callback of nutpie needs no check
of its shape, see :mod:`pymc_fastlogp._upstream.numba_returned_arrays`.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from pymc_fastlogp._upstream.numba import Frame, cgutils
from pymc_fastlogp.kernel.emit import OUT_OF_MEMORY
from pymc_fastlogp.kernel.llvm import I1, I64, POINTER
from pymc_fastlogp.kernel.numba.layouts import emit_address

# Status of a call without machine code.
NO_CODE = OUT_OF_MEMORY - 1


class Output(NamedTuple):
    """An array in C order to allocate.

    Attributes
    ----------
    type : numba.types.Array
        Type of the array.
    shape : sequence of llvmlite.ir.Value
        Lengths.
    strides : sequence of llvmlite.ir.Value
        Strides in bytes.
    size : llvmlite.ir.Value
        Size in bytes.
    is_too_large : llvmlite.ir.Value
        Whether the size overflows an integer.
    """

    type: types.Array
    shape: Sequence[ir.Value]
    strides: Sequence[ir.Value]
    size: ir.Value
    is_too_large: ir.Value


def output_of(frame: Frame, type_: types.Array, shape: Any) -> Output:
    """Return an output of the given shape."""
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
    name: str,
    layout: str,
    inputs: Sequence[ir.Value],
    outputs: Sequence[Output],
) -> tuple[ir.Value, ir.Value]:
    """Allocate the outputs and call the machine code of a kernel for a layout of its inputs.

    Returns
    -------
    status : llvmlite.ir.Value
        0, or the status of an error. There are outputs only for 0.
    slots : llvmlite.ir.Value
        Memory with the addresses of the outputs, see :func:`arrays_in`.
    """
    slots = cgutils.alloca_once(frame.builder, ir.ArrayType(POINTER, len(outputs)))
    outlined = _outlined(frame, name, layout, [x.type for x in inputs], len(outputs))
    sizes = [output.size for output in outputs]
    return frame.builder.call(outlined, [slots, *inputs, *sizes]), slots


def arrays_in(frame: Frame, outputs: Sequence[Output], slots: ir.Value) -> list[ir.Value]:
    """Return the arrays of allocated outputs."""
    places = (frame.builder.gep(slots, [I64(0), I64(i)]) for i in range(len(outputs)))
    memory = [frame.builder.load(place, typ=POINTER) for place in places]
    return [
        frame.array(output.type, frame.data_of(each), output.shape, output.strides, each)
        for output, each in zip(outputs, memory, strict=True)
    ]


def _outlined(
    caller: Frame,
    name: str,
    layout: str,
    input_types: Sequence[ir.Type],
    n_outputs: int,
) -> ir.Function:
    """Return a function that allocates the outputs, calls the machine code, and stores the addresses of the outputs in the slots."""
    module = caller.builder.module
    type_ = ir.FunctionType(I64, [POINTER, *input_types, *[I64] * n_outputs])
    outlined = ir.Function(module, type_, module.get_unique_name("with_outputs"))
    outlined.linkage = "internal"
    outlined.attributes.add("noinline")
    slots, *others = outlined.args
    inputs, sizes = others[: len(input_types)], others[len(input_types) :]

    builder = ir.IRBuilder(outlined.append_basic_block())
    frame = caller.at(builder)
    address = emit_address(frame, name, layout)
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
    """Append a conditional return, which releases memory first."""
    with frame.builder.if_then(condition, likely=False):
        for each in memory:
            frame.release(each)
        frame.builder.ret(status)
