"""A kernel in Numba: a function that calls the machine code and raises its errors.

The machine code is not part of the module that Numba compiles, see :mod:`pymc_fastlogp.kernel.layouts`. It is
loaded when the Op is converted, which PyTensor does in every process before it takes compiled code
from its cache on disk; so that code always finds it. It is freed with the function that is returned.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.np import arrayobj
from numba.np.numpy_support import from_dtype

from pymc_fastlogp.kernel import layouts
from pymc_fastlogp.kernel.emit import OUT_OF_MEMORY, emit_shapes
from pymc_fastlogp.kernel.layouts import Kernel
from pymc_fastlogp.kernel.loops import Buffer, Error, Program, as_expr
from pymc_fastlogp.kernel.lower.sizes import is_not_negative
from pymc_fastlogp.kernel.numba_function import EmittedFunction
from pymc_fastlogp.kernel.numba_outputs import (
    NO_CODE,
    Output,
    arrays_in,
    call_with_outputs,
    output_of,
)

I64, POINTER = ir.IntType(64), ir.PointerType()
TOO_LARGE = (
    "array is too big; `arr.size * arr.dtype.itemsize` is larger than the maximum possible size."
)
# What a status below 0 stands for.
ERRORS = {
    OUT_OF_MEMORY: Error(MemoryError, "no memory for what a kernel computes"),
    NO_CODE: Error(
        RuntimeError, "no code for inputs of this layout; the log of pymc_fastlogp says why"
    ),
}


def funcify(kernel: Kernel) -> EmittedFunction:
    """Return a function that Numba calls.

    Parameters
    ----------
    kernel : Kernel
        What the function calls. It takes and returns arrays, also those without axes.
    """
    program = kernel.program
    input_types, output_types = _array_types(program.inputs), _array_types(program.outputs)
    returned = types.Tuple(output_types) if len(output_types) > 1 else output_types[0]

    def emit(  # type: ignore[no-untyped-def]
        context, builder: ir.IRBuilder, given: Sequence[types.Array], values: Sequence[ir.Value]
    ) -> ir.Value:
        call = _Call(context, builder)
        arrays = [
            arrayobj.make_array(type_)(context, builder, value)
            for type_, value in zip(input_types, values, strict=True)
        ]
        inputs = call.arguments(arrays)
        outputs = call.outputs(program, output_types, inputs)
        # An array without axes is in any order.
        layout = "".join(array.layout if array.ndim else "C" for array in given)
        status, slots = call_with_outputs(
            context,
            builder,
            lambda inside: layouts.emit_address(context, inside, kernel.name, layout),
            inputs,
            outputs,
        )
        call.raise_error(status, program.errors)
        results = arrays_in(context, builder, outputs, slots)
        return context.make_tuple(builder, returned, results) if len(results) > 1 else results[0]

    return EmittedFunction("fused_kernel", returned, emit)


def _array_types(buffers: Sequence[Buffer]) -> list[types.Array]:
    return [types.Array(from_dtype(np.dtype(b.dtype)), b.ndim, "C") for b in buffers]


class _Call:
    """The code around one call of a kernel."""

    def __init__(self, context: Any, builder: ir.IRBuilder):
        self.context = context
        self.builder = builder

    def arguments(self, arrays: Sequence[Any]) -> list[ir.Value]:
        """Return the arguments of the machine code for its inputs."""
        arguments = []
        for array in arrays:
            sizes = (array.shape, array.strides)
            arguments += [self.pointer(array)]
            arguments += [n for size in sizes for n in cgutils.unpack_tuple(self.builder, size)]
        return arguments

    def outputs(
        self, program: Program, output_types: Sequence[types.Array], inputs: Sequence[ir.Value]
    ) -> list[Output]:
        """Return what is to be allocated; raise where a length is negative or memory cannot be as large."""
        shapes = emit_shapes(self.builder, program, inputs)
        self.require_not_negative(program, shapes)
        found = [
            output_of(self.context, self.builder, type_, shape)
            for type_, shape in zip(output_types, shapes, strict=True)
        ]
        for each in found:
            with self.builder.if_then(each.is_too_large, likely=False):
                self.context.call_conv.return_user_exc(self.builder, ValueError, (TOO_LARGE,))
        return found

    def require_not_negative(self, program: Program, shapes: Sequence[Sequence[ir.Value]]) -> None:
        """Raise where a length is negative."""
        for buffer, shape in zip(program.outputs, shapes, strict=True):
            for size, length in zip(buffer.shape, shape, strict=True):
                if is_not_negative(as_expr(size)):
                    continue
                is_negative = self.builder.icmp_signed("<", length, I64(0))
                with self.builder.if_then(is_negative, likely=False):
                    message = ("negative dimensions not allowed",)
                    self.context.call_conv.return_user_exc(self.builder, ValueError, message)

    def pointer(self, array: Any) -> ir.Value:
        """Return the address of the elements."""
        return self.builder.bitcast(array.data, POINTER)

    def raise_error(self, status: ir.Value, errors: Sequence[Error]) -> None:
        """Raise what a status other than 0 stands for."""
        failed = self.builder.icmp_signed("!=", status, I64(0))
        with self.builder.if_then(failed, likely=False):
            for number, error in [*ERRORS.items(), *enumerate(errors, 1)]:
                with self.builder.if_then(self.builder.icmp_signed("==", status, I64(number))):
                    self.context.call_conv.return_user_exc(
                        self.builder, error.type, (error.message,)
                    )
            self.builder.unreachable()
