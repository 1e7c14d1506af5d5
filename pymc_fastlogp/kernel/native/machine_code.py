"""From a program to machine code: compiled once, kept on disk, freed with the object that loaded it.

The code of a program is a function of the C calling convention, see :mod:`pymc_fastlogp.kernel.emit`, whose
name is a hash of all that the code depends on. Each loaded function has an engine of LLVM of its own, so that it can be freed.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from llvmlite import binding as llvm
from llvmlite import ir
from pytensor.configdefaults import config

from pymc_fastlogp.kernel.emit import emit
from pymc_fastlogp.kernel.ir.expressions import Compute
from pymc_fastlogp.kernel.ir.loops import Call, Program
from pymc_fastlogp.kernel.ir.text import as_text
from pymc_fastlogp.kernel.ir.traversal import expressions
from pymc_fastlogp.kernel.native import blas, object_files
from pymc_fastlogp.kernel.native.scalar_library import address
from pymc_fastlogp.kernel.native.target import optimised, target_machine
from pymc_fastlogp.kernel.scalars import externals
from pymc_fastlogp.kernel.scalars.upstream import External


class Code:
    """Machine code in memory, whose address is valid as long as this object."""

    def __init__(self, engine: llvm.ExecutionEngine, name: str):
        self._engine = engine
        self.address = engine.get_function_address(name)


def load(program: Program, contiguous: Sequence[bool] | None = None) -> Code:
    """Return the machine code of a program, by default for inputs that are all C-contiguous."""
    name = name_of(program, contiguous)
    return Code(engine_of(program, _object_code(program, name, contiguous)), name)


def name_of(program: Program, contiguous: Sequence[bool] | None = None) -> str:
    """Return the name of a program's code and errors, the same in every process on this machine."""
    strided = [i for i, is_contiguous in enumerate(contiguous or ()) if not is_contiguous]
    errors = [(error.type.__module__, error.type.__qualname__) for error in program.errors]
    key = "\n".join([compiler(), as_text(program), f"strided: {strided}", f"errors: {errors}"])
    return f"{object_files.PREFIX}{sha256(key.encode()).hexdigest()}"


@cache
def compiler() -> str:
    """Return all that code depends on, besides what it is the code of."""
    sources = sorted(Path(__file__).parents[1].rglob("*.py"))
    source = sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return "\n".join([source, version("llvmlite"), cpu, features])


def engine_of(program: Program, code: bytes) -> llvm.ExecutionEngine:
    """Return an engine that has loaded the code of a program; it owns the code."""
    for external in _externals(program):
        llvm.add_symbol(external.symbol, address(external))
    blas.bind(s.function for loop in program.steps for s in loop.body if isinstance(s, Call))
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def _externals(program: Program) -> Iterator[External]:
    for loop in program.steps:
        for expr in expressions(loop):
            if isinstance(expr, Compute):
                yield from externals(expr.op, len(expr.args))


def _object_code(program: Program, name: str, contiguous: Sequence[bool] | None) -> bytes:
    code = object_files.read(name) if config.numba__cache else None
    if code is not None:
        return code
    code = compile_program(program, name, contiguous)
    if config.numba__cache:
        object_files.write(name, code)
    return code


def compile_program(program: Program, name: str, contiguous: Sequence[bool] | None = None) -> bytes:
    """Return the object code of a program's function, optimised for this CPU."""
    machine = target_machine()
    module = ir.Module(name)
    emit(module, program, name, contiguous or [True] * len(program.inputs))
    return machine.emit_object(optimised(module, machine))
