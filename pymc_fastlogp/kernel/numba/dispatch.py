"""Kernels in Numba: functions that call the machine code and raise its errors.

Importing this module registers kernels with Numba, see :mod:`pymc_fastlogp.kernel.graph.linking`. The machine code is not part of the module that
Numba compiles, see :mod:`pymc_fastlogp.kernel.numba.layouts`. It is loaded when PyTensor converts the Op. PyTensor does so in every
process before it takes compiled code from its cache on disk, so this code always finds the machine code. The machine code
is freed with the function that Numba returns.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from pytensor.compile.mode import get_mode
from pytensor.compile.rewriting import rewrite_ofg_inner_graph
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph

from pymc_fastlogp._upstream.numba import (
    EmittedFunction,
    Frame,
    array_type,
    numba_funcify_and_cache_key,
    register_funcify_and_cache_key,
    returned_type,
)
from pymc_fastlogp._upstream.numba_returned_arrays import ReturnedArray, returned_outputs
from pymc_fastlogp.kernel.defects import report_defect
from pymc_fastlogp.kernel.emit import OUT_OF_MEMORY, emit_shapes
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.ir.arithmetic import is_not_negative
from pymc_fastlogp.kernel.ir.expressions import Buffer, as_expr
from pymc_fastlogp.kernel.ir.loops import Error, Program
from pymc_fastlogp.kernel.llvm import I64
from pymc_fastlogp.kernel.native.kernels import Kernel
from pymc_fastlogp.kernel.numba.outputs import (
    NO_CODE,
    Output,
    arrays_in,
    call_with_outputs,
    output_of,
)

NEGATIVE = "negative dimensions not allowed"
TOO_LARGE = (
    "array is too big; `arr.size * arr.dtype.itemsize` is larger than the maximum possible size."
)
# Exceptions for negative statuses.
ERRORS = {
    OUT_OF_MEMORY: Error(MemoryError, "no memory for the results of a kernel"),
    NO_CODE: Error(
        RuntimeError, "no code for inputs of this layout; the log of pymc_fastlogp has the reason"
    ),
}


@register_funcify_and_cache_key(FusedKernel)
def _funcify(op: FusedKernel, node: Apply, **kwargs: Any) -> tuple[Any, str | None]:
    """Return the function of a kernel, and the name of its machine code as the cache key. After an unexpected error, compile as PyTensor does."""
    try:
        kernel, returned = op.compile(), returned_outputs(node, **kwargs)
        # Different output types have different keys.
        key = f"{kernel.name}.{''.join('r' if each else 'a' for each in returned)}"
        return funcify(kernel, op.in_python, returned), key
    except Exception as error:
        report_defect(error, str(op))
    kwargs.pop("storage_map", None)
    graph = _without_kernels(op, node)
    return numba_funcify_and_cache_key(
        graph, squeeze_output=True, fgraph_name="numba_ofg", **kwargs
    )


def _without_kernels(op: FusedKernel, node: Apply) -> FunctionGraph:
    """Return the inner graph, rewritten as PyTensor rewrites the inner graph of an ``OpFromGraph``."""
    mode = get_mode("NUMBA").excluding("fastlogp")
    graph = op.fgraph.unfreeze()
    rewrite_ofg_inner_graph(mode.linker, op, node, graph, mode=mode)
    return graph


def funcify(
    kernel: Kernel, in_python: Callable[..., Any], returned: Sequence[bool]
) -> EmittedFunction:
    """Return the function of a kernel for Numba.

    Parameters
    ----------
    kernel : Kernel
        Kernel to call. Scalars are passed and returned as arrays without axes.
    in_python : callable
        Python equivalent of the function.
    returned : sequence of bool
        For each output whether the whole graph returns it. Such an output has its own Numba type, see
        :mod:`pymc_fastlogp._upstream.numba_returned_arrays`.
    """
    program = kernel.program
    input_types, output_types = _array_types(program.inputs), _array_types(program.outputs)
    output_types = [
        ReturnedArray(type_.dtype, type_.ndim) if is_returned else type_
        for type_, is_returned in zip(output_types, returned, strict=True)
    ]

    def emit(frame: Frame, given: Sequence[types.Array], values: Sequence[ir.Value]) -> ir.Value:
        arrays = zip(input_types, values, strict=True)
        arguments = [frame.arguments_of(type_, value) for type_, value in arrays]
        for buffer, (_, *lengths) in zip(program.inputs, arguments, strict=True):
            _check_lengths(frame, buffer, lengths[: buffer.ndim])
        inputs = [x for each in arguments for x in each]
        outputs = _outputs(frame, program, output_types, inputs)
        # An array without axes is contiguous in any order.
        layout = "".join(array.layout if array.ndim else "C" for array in given)
        status, slots = call_with_outputs(frame, kernel.name, layout, inputs, outputs)
        _raise_error(frame, status, program.errors)
        return frame.results(output_types, arrays_in(frame, outputs, slots))

    result = returned_type(output_types)
    return EmittedFunction("fused_kernel", result, emit, in_python, kernel, input_types)


def _check_lengths(frame: Frame, buffer: Buffer, lengths: Sequence[ir.Value]) -> None:
    """Raise an error for a length that differs from the static length of the type. nutpie replaces data without such a check."""
    for length, expected in zip(lengths, buffer.shape, strict=True):
        if isinstance(expected, int):
            differs = frame.builder.icmp_signed("!=", length, I64(expected))
            with frame.builder.if_then(differs, likely=False):
                frame.raise_error(
                    ValueError, "the shape of an input differs from the static shape of its type"
                )


def _array_types(buffers: Sequence[Buffer]) -> list[types.Array]:
    return [array_type(b.dtype, b.ndim) for b in buffers]


def _outputs(
    frame: Frame, program: Program, output_types: Sequence[types.Array], inputs: Sequence[ir.Value]
) -> list[Output]:
    """Return the outputs to allocate; raise an error for a negative length or a size that overflows."""
    shapes = emit_shapes(frame.builder, program, inputs)
    for buffer, shape in zip(program.outputs, shapes, strict=True):
        for size, length in zip(buffer.shape, shape, strict=True):
            if not is_not_negative(as_expr(size)):
                is_negative = frame.builder.icmp_signed("<", length, I64(0))
                with frame.builder.if_then(is_negative, likely=False):
                    frame.raise_error(ValueError, NEGATIVE)
    found = [
        output_of(frame, type_, shape) for type_, shape in zip(output_types, shapes, strict=True)
    ]
    for each in found:
        with frame.builder.if_then(each.is_too_large, likely=False):
            frame.raise_error(ValueError, TOO_LARGE)
    return found


def _raise_error(frame: Frame, status: ir.Value, errors: Sequence[Error]) -> None:
    """Raise the error of a nonzero status."""
    builder = frame.builder
    with builder.if_then(builder.icmp_signed("!=", status, I64(0)), likely=False):
        for number, error in [*ERRORS.items(), *enumerate(errors, 1)]:
            with builder.if_then(builder.icmp_signed("==", status, I64(number))):
                frame.raise_error(error.type, error.message)
        builder.unreachable()
