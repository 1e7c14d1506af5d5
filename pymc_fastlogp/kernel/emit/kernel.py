"""Code generation: a program of loops becomes one LLVM function, which calls others if the program is long."""

from collections.abc import Sequence
from dataclasses import replace

from llvmlite import ir

from pymc_fastlogp.kernel.emit.contiguous_copies import with_copied_operands
from pymc_fastlogp.kernel.emit.function import NO_LOOP, Function, place_input
from pymc_fastlogp.kernel.emit.parts import parts_of
from pymc_fastlogp.kernel.emit.repeat import emit_steps
from pymc_fastlogp.kernel.emit.scope import Known, Scope
from pymc_fastlogp.kernel.ir.loops import Program
from pymc_fastlogp.kernel.llvm import I64


def emit(module: ir.Module, program: Program, name: str, contiguous: Sequence[bool]) -> ir.Function:
    """Add the function of a program to a module.

    Returns
    -------
    llvmlite.ir.Function
        ``i64 name(...)``. Its arguments are, for each input, a pointer to its elements, the lengths of its
        axes and the strides in bytes, all i64; then a pointer for each output, which is C-contiguous and
        does not overlap anything else. The strides of inputs that are contiguous are not looked at. In memory, a
        bool is a byte. It returns 0, or the status of the first
        check that failed, or ``OUT_OF_MEMORY``. It needs the symbols ``malloc`` and ``free`` if
        the scratch is large or of a size that is not static, and those of :mod:`pymc_fastlogp.kernel.native.blas`.
    """
    program = with_copied_operands(program, contiguous)
    parts = parts_of(program)
    if len(parts) > 1:
        return _emit_parts(module, program, parts, name, contiguous)
    function = Function(module, program, name, contiguous)
    emit_steps(function, program.steps)
    return function.finish()


def _emit_parts(
    module: ir.Module,
    program: Program,
    parts: Sequence[Program],
    name: str,
    contiguous: Sequence[bool],
) -> ir.Function:
    """Add a function that calls others, one after the other."""
    shared = parts[0].outputs[len(program.outputs) :]
    function = Function(module, replace(program, scratch=shared, constants=()), name, contiguous)
    for number, part in enumerate(parts):
        function.call(_emit_part(module, part, f"{name}.{number}", contiguous), part.steps, shared)
    return function.finish()


def _emit_part(
    module: ir.Module, part: Program, name: str, contiguous: Sequence[bool]
) -> ir.Function:
    inner = Function(module, part, name, contiguous)
    emit_steps(inner, part.steps)
    function = inner.finish()
    function.linkage = "internal"
    # What is called once is inlined else, however long it is.
    function.attributes.add("noinline")
    return function


def emit_shapes(
    builder: ir.IRBuilder, program: Program, inputs: Sequence[ir.Value]
) -> list[list[ir.Value]]:
    """Return the shapes of the outputs, for a caller that allocates them, from the arguments before the outputs."""
    arguments, known = iter(inputs), Known({}, {})
    for number, buffer in enumerate(program.inputs):
        known.arrays[buffer] = place_input(buffer, number, arguments, known.lengths)
    scope = Scope(builder, known, NO_LOOP)
    return [
        [I64(size) if isinstance(size, int) else scope.scalar(size) for size in buffer.shape]
        for buffer in program.outputs
    ]
