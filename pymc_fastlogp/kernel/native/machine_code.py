"""Machine code of a program: compiled once, cached on disk, freed with the object that loaded it.

The code is a function of the C calling convention, see :mod:`pymc_fastlogp.kernel.emit`. Its
name is a hash of everything that the code depends on. Each loaded function has its own LLVM engine, so that it can be freed separately.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256

from llvmlite import binding as llvm
from llvmlite import ir

from pymc_fastlogp.kernel.emit import dense, emit, matrix_products, row_products
from pymc_fastlogp.kernel.ir.expressions import Compute
from pymc_fastlogp.kernel.ir.loops import Call, Program
from pymc_fastlogp.kernel.ir.text import as_text
from pymc_fastlogp.kernel.ir.traversal import all_loops, expressions
from pymc_fastlogp.kernel.native import blas, object_files
from pymc_fastlogp.kernel.native.loaded_code import LoadedCode, compiler, engine
from pymc_fastlogp.kernel.native.target import optimized, target_machine
from pymc_fastlogp.kernel.scalars import externals
from pymc_fastlogp.kernel.scalars.upstream import External


def load(program: Program, contiguous: Sequence[bool] | None = None) -> LoadedCode:
    """Load the machine code of a program; all inputs are C-contiguous by default."""
    name = name_of(program, contiguous)
    return LoadedCode(engine_of(program, object_code(program, name, contiguous)), name)


def name_of(program: Program, contiguous: Sequence[bool] | None = None) -> str:
    """Return the name of the code of a program, which is the same in every process on this machine and depends on the errors, too."""
    strided = [i for i, is_contiguous in enumerate(contiguous or ()) if not is_contiguous]
    errors = [(error.type.__module__, error.type.__qualname__) for error in program.errors]
    key = "\n".join([compiler(), as_text(program), f"strided: {strided}", f"errors: {errors}"])
    return f"{object_files.PREFIX}{sha256(key.encode()).hexdigest()}"


def engine_of(program: Program, code: bytes) -> llvm.ExecutionEngine:
    """Load the object code of a program; the returned engine owns the code."""
    bind_scalars(program)
    blas.bind(library_functions(program))
    return engine(code)


def bind_scalars(program: Program) -> None:
    """Map the symbols of the scalar functions of PyTensor that a program calls to their addresses in this process."""
    for external in externals_of(program):
        from pymc_fastlogp.kernel.native.scalar_library import address  # imports Numba

        llvm.add_symbol(external.symbol, address(external))


def library_functions(program: Program) -> set[str]:
    """Return the functions of BLAS and LAPACK that a program calls."""
    calls = (s for loop in all_loops(program) for s in loop.body if isinstance(s, Call))
    generated = {*dense.FUNCTIONS, *row_products.FUNCTIONS, *matrix_products.FUNCTIONS}
    return {call.function for call in calls} - generated


def externals_of(program: Program) -> Iterator[External]:
    """Yield the scalar functions of PyTensor that a program calls."""
    for loop in all_loops(program):
        for expr in expressions(loop):
            if isinstance(expr, Compute):
                yield from externals(expr.op, len(expr.args))


def object_code(program: Program, name: str, contiguous: Sequence[bool] | None = None) -> bytes:
    """Return the object code of a program, from the cache on disk if possible."""
    return object_files.read_or_make(name, lambda: compile_program(program, name, contiguous))


def compile_program(program: Program, name: str, contiguous: Sequence[bool] | None = None) -> bytes:
    """Compile a program to object code that is optimized for this CPU."""
    machine = target_machine()
    module = ir.Module(name)
    emit(module, program, name, contiguous or [True] * len(program.inputs))
    return machine.emit_object(optimized(module, machine))
