"""Code generation: a program of loops becomes one LLVM function, which calls others if the program is long."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llvmlite import ir

from pymc_fastlogp.kernel.emit.contiguous_copies import with_copied_operands
from pymc_fastlogp.kernel.emit.function import NO_LOOP, Function, place_input
from pymc_fastlogp.kernel.emit.outlining import Part, parts_of
from pymc_fastlogp.kernel.emit.scope import Known, Scope
from pymc_fastlogp.kernel.emit.steps import emit_steps
from pymc_fastlogp.kernel.ir.loops import Program
from pymc_fastlogp.kernel.llvm import I64
from pymc_fastlogp.kernel.native.target import default_width, uses_gathers


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
    return _Emission(module, contiguous, default_width(), uses_gathers()).of(program, name)


@dataclass(frozen=True)
class _Emission:
    """State shared by all functions of a kernel: the largest number of lanes, and the use of gather instructions."""

    module: ir.Module
    contiguous: Sequence[bool]
    lanes: int
    uses_gathers: bool

    def of(self, program: Program, name: str) -> ir.Function:
        """Add the function of a program, and those that it calls."""
        program = with_copied_operands(program, self.contiguous)
        parts = parts_of(program)
        function = self._with_parts(program, parts, name)
        if program.fallback:
            # Vectors would be more code, for what hardly ever runs.
            fallback = replace(self, lanes=1).of(program.fallback.program, f"{name}.fallback")
            function.call_if(program.fallback.failed, _called(fallback))
        return function.finish()

    def _with_parts(self, program: Program, parts: Sequence[Part], name: str) -> Function:
        """Return a function with the steps of a program, or with the calls of its parts, one after the other."""
        if len(parts) == 1:
            return self._function(*parts[0], name)
        own = {buffer for part in parts for buffer in part.program.scratch}
        shared = tuple(buffer for buffer in program.scratch if buffer not in own)
        whole = replace(program, scratch=shared, constants=(), steps=())
        function = self._function(*Part.whole(whole), name)
        for number, part in enumerate(parts):
            inner = self._function(*part, f"{name}.{number}").finish()
            function.call_part(_called(inner), part)
        return function

    def _function(self, program: Program, given: Sequence[int], name: str) -> Function:
        """Return a function with the steps of a program, and its inputs of some numbers."""
        function = Function(
            self.module, program, name, self.contiguous, given, self.lanes, self.uses_gathers
        )
        emit_steps(function, program.steps)
        return function


def _called(function: ir.Function) -> ir.Function:
    """Return a function that the kernel calls, and nobody else."""
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
