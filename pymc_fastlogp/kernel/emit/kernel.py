"""Code generation: a program of loops becomes one LLVM function, which calls further functions if the program is long."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llvmlite import ir

from pymc_fastlogp.kernel.emit.function import NO_LOOP, Function, place_input
from pymc_fastlogp.kernel.emit.outlining import Part, parts_of
from pymc_fastlogp.kernel.emit.scope import Known, Scope
from pymc_fastlogp.kernel.emit.steps import emit_steps
from pymc_fastlogp.kernel.ir.arithmetic import domain_of
from pymc_fastlogp.kernel.ir.expressions import Buffer, Load, Role
from pymc_fastlogp.kernel.ir.loops import Loop, Program, Store
from pymc_fastlogp.kernel.ir.substitute import redirect_loads, substitute_in_loop
from pymc_fastlogp.kernel.ir.traversal import is_call, loops_in, reads, with_loops
from pymc_fastlogp.kernel.llvm import I64
from pymc_fastlogp.kernel.native.target import default_width, uses_gathers


def emit(module: ir.Module, program: Program, name: str, contiguous: Sequence[bool]) -> ir.Function:
    """Add the function of a program to a module.

    Parameters
    ----------
    module : llvmlite.ir.Module
        Module to extend.
    program : Program
        Program to compile.
    name : str
        Symbol of the function.
    contiguous : sequence of bool
        For each input whether it is C-contiguous.

    Returns
    -------
    llvmlite.ir.Function
        ``i64 name(...)``. The arguments are:

        - for each input a pointer to its elements, the lengths of its axes, and the strides in bytes, all i64;
          the strides of contiguous inputs are ignored,
        - for each output a pointer to C-contiguous memory that does not overlap any other argument.

        In memory a bool is a byte. The function returns 0, or the status of the first failed check, or ``OUT_OF_MEMORY``.
        It needs the symbols of :mod:`pymc_fastlogp.kernel.native.blas`, and ``malloc`` and ``free`` if scratch buffers are on the heap.
    """
    return _Emission(module, contiguous, default_width(), uses_gathers()).of(program, name)


@dataclass(frozen=True)
class _Emission:
    """State shared by all functions of a kernel.

    Attributes
    ----------
    module : llvmlite.ir.Module
        Module to extend.
    contiguous : sequence of bool
        For each input whether it is C-contiguous.
    lanes : int
        Largest number of lanes of a vector.
    uses_gathers : bool
        Whether to use gather and scatter instructions.
    """

    module: ir.Module
    contiguous: Sequence[bool]
    lanes: int
    uses_gathers: bool

    def of(self, program: Program, name: str) -> ir.Function:
        """Add the function of a program, and all functions that it calls."""
        program = with_copied_operands(program, self.contiguous)
        parts = parts_of(program)
        function = self._with_parts(program, parts, name)
        if program.fallback:
            # The fallback hardly ever runs, and vector code would be longer.
            fallback = replace(self, lanes=1).of(program.fallback.program, f"{name}.fallback")
            function.call_if(program.fallback.failed, _internal(fallback))
        return function.finish()

    def _with_parts(self, program: Program, parts: Sequence[Part], name: str) -> Function:
        """Return a function with the steps of a program, or with calls of its outlined parts, in order."""
        if len(parts) == 1:
            return self._function(*parts[0], name)
        own = {buffer for part in parts for buffer in part.program.scratch}
        shared = tuple(buffer for buffer in program.scratch if buffer not in own)
        whole = replace(program, scratch=shared, constants=(), steps=())
        function = self._function(*Part.whole(whole), name)
        for number, part in enumerate(parts):
            inner = self._function(*part, f"{name}.{number}").finish()
            function.call_part(_internal(inner), part)
        return function

    def _function(self, program: Program, given: Sequence[int], name: str) -> Function:
        """Return a function with the steps of a program; ``given`` are the numbers of the inputs that are arguments."""
        function = Function(
            self.module, program, name, self.contiguous, given, self.lanes, self.uses_gathers
        )
        emit_steps(function, program.steps)
        return function


def _internal(function: ir.Function) -> ir.Function:
    """Make a function private to its module, and exclude it from inlining."""
    function.linkage = "internal"
    # LLVM inlines a function with a single call site, however long it is.
    function.attributes.add("noinline")
    return function


def with_copied_operands(program: Program, contiguous: Sequence[bool]) -> Program:
    """Return the program in which library calls read C-ordered copies of the inputs that are not C-contiguous.

    Loops read an input through its strides, but BLAS and LAPACK need contiguous operands. The copy is cheap
    compared with a product or a factorization.
    """
    read = set().union(*(reads(loop) for loop in loops_in(program.steps) if is_call(loop)))
    copies = {
        buffer: replace(buffer, name=f"{buffer.name}_copy", role=Role.SCRATCH)
        for buffer, is_contiguous in zip(program.inputs, contiguous, strict=True)
        if buffer in read and not is_contiguous
    }
    read_copies = redirect_loads(copies)
    calls = with_loops(
        program.steps,
        lambda loop: [substitute_in_loop(loop, read_copies) if is_call(loop) else loop],
    )
    scratch = (*program.scratch, *copies.values())
    copying = (_copy_loop(source, target) for source, target in copies.items())
    return replace(program, scratch=scratch, steps=(*copying, *calls))


def _copy_loop(source: Buffer, target: Buffer) -> Loop:
    domain, index = domain_of(source.shape)
    return Loop(domain, (Store(target, index, Load(source, index)),))


def emit_shapes(
    builder: ir.IRBuilder, program: Program, inputs: Sequence[ir.Value]
) -> list[list[ir.Value]]:
    """Return the shapes of the outputs, for a caller that allocates the outputs.

    ``inputs`` are the arguments of the function before the outputs, see :func:`emit`.
    """
    arguments, known = iter(inputs), Known({}, {})
    for number, buffer in enumerate(program.inputs):
        known.arrays[buffer] = place_input(buffer, number, arguments, known.lengths)
    scope = Scope(builder, known, NO_LOOP)
    return [
        [I64(size) if isinstance(size, int) else scope.scalar(size) for size in buffer.shape]
        for buffer in program.outputs
    ]
