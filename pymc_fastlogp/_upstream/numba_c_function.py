"""Private Numba APIs: compile a graph as a C function on arrays that the caller owns.

.. code-block:: text

    i64 function(i64 *words)

The words are, for each input, the address of its elements in C order and its lengths, followed by the address of each output. The function copies each
result to its output and casts to float64. Numba types and lowers only a call, since emitted functions read and write the words.
"""

from collections.abc import Sequence
from typing import Any

import numba
from llvmlite import ir
from numba import types

from pymc_fastlogp._upstream.numba import EmittedFunction, Frame, array_type

I8, I64 = ir.IntType(8), ir.IntType(64)
SHAPE = "an output has not as many elements as there is room for"
SOURCE = """\
def run(words):
    results = graph({given})
    {taken}
"""


def c_function(
    graph: Any, inputs: Sequence[tuple[str, int]], outputs: Sequence[tuple[int, ...]]
) -> Any:
    """Return the C function of a graph, which returns 1 if the graph raises, else 0.

    Parameters
    ----------
    graph : Dispatcher
        The function of the graph, from PyTensor's Numba linker: from arrays to a tuple of arrays.
    inputs : sequence of (str, int)
        Dtype and number of dimensions of each input.
    outputs : sequence of tuple of int
        Shapes of the outputs. A result of another shape is an error.

    Returns
    -------
    object
        An object whose attribute ``address`` is valid during its lifetime.
    """
    functions, at = {"graph": graph}, 0
    for number, (dtype, ndim) in enumerate(inputs):
        functions[f"given_{number}"] = _given(dtype, ndim, at)
        at += 1 + ndim
    for number, shape in enumerate(outputs):
        functions[f"taken_{number}"] = _taken(shape, at + number)
    source = SOURCE.format(
        given=", ".join(f"given_{i}(words)" for i in range(len(inputs))),
        taken="; ".join(f"taken_{i}(words, results[{i}])" for i in range(len(outputs))),
    )
    exec(compile(source, "<pymc_fastlogp>", "exec"), functions)
    run = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)(functions["run"])
    status_of = _status_of(run)

    def function(words: Any) -> Any:
        return status_of(words)

    return numba.cfunc(types.int64(types.voidptr))(function)


def _status_of(run: Any) -> EmittedFunction:
    """Return a function from the words to 1 if ``run`` raises, else 0.

    An ``except`` block does not work: for an error of Python code, such as a user's Op, Numba jumps to the block through an uninitialized pointer. The
    Python error is cleared, because the caller is not Python and would leave it set.
    """
    run.compile((types.voidptr,))
    [compiled] = run.overloads.values()

    def emit(frame: Frame, given: Sequence[types.Type], values: Sequence[ir.Value]) -> ir.Value:
        context, builder = frame.context, frame.builder
        context.active_code_library.add_linking_library(compiled.library)
        status, _ = context.call_internal_no_propagate(
            builder, compiled.fndesc, compiled.signature, values
        )
        with builder.if_then(status.is_python_exc, likely=False):
            python = context.get_python_api(builder)
            lock = python.gil_ensure()
            python.err_clear()
            python.gil_release(lock)
        return builder.zext(status.is_error, I64)

    return EmittedFunction("status_of", types.int64, emit, run)


def _given(dtype: str, ndim: int, at: int) -> EmittedFunction:
    """Return a function from the words to the array of an input, whose words begin at ``at``."""
    type_ = array_type(dtype, ndim)

    def emit(frame: Frame, given: Sequence[types.Type], values: Sequence[ir.Value]) -> ir.Value:
        builder = frame.builder
        address, *shape = (builder.load(_word(builder, values[0], at + i)) for i in range(1 + ndim))
        strides: list[ir.Value] = []
        stride: ir.Value = I64(frame.itemsize(type_))
        for length in reversed(shape):
            strides.insert(0, stride)
            stride = builder.mul(stride, length)
        return frame.array(type_, builder.inttoptr(address, I8.as_pointer()), shape, strides)

    return EmittedFunction("given", type_, emit, _only_compiled)


def _taken(shape: tuple[int, ...], at: int) -> EmittedFunction:
    """Return a function that copies an array to the address in a word, and raises if the array has another shape."""

    def emit(frame: Frame, given: Sequence[types.Type], values: Sequence[ir.Value]) -> ir.Value:
        type_, builder = given[1], frame.builder
        if not isinstance(type_, types.Array) or type_.ndim != len(shape):
            raise NotImplementedError(f"an output of type {type_}")
        data, *sizes = frame.arguments_of(type_, values[1])
        for length, expected in zip(sizes, shape, strict=False):
            differs = builder.icmp_signed("!=", length, I64(expected))
            with builder.if_then(differs, likely=False):
                frame.raise_error(ValueError, SHAPE)
        to = builder.inttoptr(
            builder.load(_word(builder, values[0], at)), ir.DoubleType().as_pointer()
        )
        lengths = [I64(n) for n in shape]
        frame.copy_elements(type_, data, sizes[len(shape) :], lengths, to, types.float64)
        return frame.context.get_dummy_value()

    return EmittedFunction("taken", types.none, emit, _only_compiled)


def _word(builder: ir.IRBuilder, words: ir.Value, number: int) -> ir.Value:
    """Return a pointer to a word."""
    return builder.gep(builder.bitcast(words, I64.as_pointer()), [I64(number)])


def _only_compiled(*arguments: Any) -> Any:
    raise NotImplementedError("only compiled code has words")
