"""A kernel as machine code that is called with NumPy arrays, without Numba."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_fastlogp.kernel.emit import OUT_OF_MEMORY
from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Const, Expr, Length, Load, Size
from pymc_fastlogp.kernel.ir.loops import Program
from pymc_fastlogp.kernel.ir.traversal import walk
from pymc_fastlogp.kernel.native.machine_code import compile_program, engine_of

NAME = "pymc_fastlogp_kernel"


class NativeKernel:
    """The compiled function of a program.

    Attributes
    ----------
    program : Program
        What it does.
    address : int
        Of the function that :func:`~pymc_fastlogp.kernel.emit.emit` describes, valid as long as this object.
    """

    def __init__(self, program: Program, contiguous: Sequence[bool], engine: Any):
        self.program = program
        self._contiguous = contiguous
        self._engine = engine
        self.address = engine.get_function_address(NAME)
        self._function = _c_type(program)(self.address)

    def __call__(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """Return the outputs.

        Parameters
        ----------
        *inputs : ndarray
            Of the types and numbers of axes of the inputs of the program, and contiguous where it was
            compiled for that.

        Raises
        ------
        TypeError
            If an input has another type, number of axes or layout.
        Exception
            What a failed check raises.
        MemoryError
            If there is no memory for scratch.
        """
        for buffer, array, contiguous in zip(
            self.program.inputs, inputs, self._contiguous, strict=True
        ):
            _check_input(buffer, array, contiguous)
        outputs = [
            np.empty([_evaluated(self.program, n, inputs) for n in buffer.shape], buffer.dtype)
            for buffer in self.program.outputs
        ]
        self.run(self.arguments(inputs, outputs))
        return outputs

    def arguments(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> list[int]:
        """Return the arguments of the function; the arrays must outlive them."""
        arguments: list[int] = []
        for array in inputs:
            arguments += [array.ctypes.data, *array.shape, *array.strides]
        return [*arguments, *(array.ctypes.data for array in outputs)]

    def run(self, arguments: Sequence[int]) -> None:
        """Call the function, and raise what a failed check raises."""
        status = self._function(*arguments)
        if status == 0:
            return
        if status == OUT_OF_MEMORY:
            raise MemoryError("no memory for the scratch of a kernel")
        error = self.program.errors[status - 1]
        raise error.type(error.message)


def compile_native(program: Program, contiguous: Sequence[bool] | None = None) -> NativeKernel:
    """Compile a program for this CPU.

    Parameters
    ----------
    program : Program
        The program.
    contiguous : sequence of bool, optional
        For each input whether it is C-contiguous; all are by default.
    """
    contiguous = [True] * len(program.inputs) if contiguous is None else contiguous
    code = compile_program(program, NAME, contiguous)
    return NativeKernel(program, contiguous, engine_of(program, code))


def _c_type(program: Program) -> Any:
    arguments: list[Any] = []
    for buffer in program.inputs:
        arguments += [ctypes.c_void_p, *[ctypes.c_int64] * (2 * buffer.ndim)]
    return ctypes.CFUNCTYPE(ctypes.c_int64, *arguments, *[ctypes.c_void_p] * len(program.outputs))


def _check_input(buffer: Buffer, array: np.ndarray, contiguous: bool) -> None:
    if array.dtype != buffer.dtype or array.ndim != buffer.ndim:
        raise TypeError(
            f"input {buffer.name} must be {buffer.dtype} with {buffer.ndim} axes, "
            f"not {array.dtype} with {array.ndim}"
        )
    if contiguous and not array.flags.c_contiguous:
        raise TypeError(f"input {buffer.name} must be C-contiguous: use np.ascontiguousarray")


def _evaluated(program: Program, size: Size, inputs: Sequence[np.ndarray]) -> int:
    """Return a length as a number."""
    if isinstance(size, int):
        return size
    numbers = {buffer: number for number, buffer in enumerate(program.inputs)}
    values: dict[Expr, Any] = {}
    for expr in walk([size]):
        if isinstance(expr, Const):
            values[expr] = expr.value
        elif isinstance(expr, Length):
            values[expr] = inputs[expr.input].shape[expr.axis]
        elif isinstance(expr, Load):
            position = tuple(values[i] for i in expr.index)
            values[expr] = inputs[numbers[expr.buffer]][position].item()
        elif isinstance(expr, Compute):
            values[expr] = expr.op.impl(*(values[arg] for arg in expr.args))
    return int(values[size])
