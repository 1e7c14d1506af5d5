"""From a program to machine code: compiled once, kept on disk, loaded once in a process.

The code of a program is a function of the C calling convention, see :mod:`pymc_fastlogp.kernel.emit`, whose
name is a hash of all that the code depends on. Once :func:`load` has run, the name resolves in every
module that LLVM links in this process, so other code calls it by name. That keeps a kernel out of the
modules that call it: Numba optimises and compiles a module again at each level that links it.

Loaded code stays until the process ends, as other machine code may refer to it.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile

from llvmlite import binding as llvm
from llvmlite import ir
from pytensor.configdefaults import config

from pymc_fastlogp.kernel.emit import emit
from pymc_fastlogp.kernel.ir.expressions import Compute
from pymc_fastlogp.kernel.ir.loops import Call, Program
from pymc_fastlogp.kernel.ir.text import as_text
from pymc_fastlogp.kernel.ir.traversal import expressions
from pymc_fastlogp.kernel.native import blas
from pymc_fastlogp.kernel.native.target import optimised, target_machine
from pymc_fastlogp.kernel.numba.scalar_library import address
from pymc_fastlogp.kernel.scalars import externals
from pymc_fastlogp.kernel.scalars.upstream import External

logger = logging.getLogger("pymc_fastlogp")

# Engines by the name of their function. An engine owns its code.
_loaded: dict[str, llvm.ExecutionEngine] = {}
_lock = threading.Lock()


def load(program: Program, contiguous: Sequence[bool] | None = None) -> str:
    """Make the machine code of a program callable by name, and return the name.

    Parameters
    ----------
    program : Program
        The program.
    contiguous : sequence of bool, optional
        For each input whether it is C-contiguous; all are by default.
    """
    name = name_of(program, contiguous)
    with _lock:
        if name not in _loaded:
            _loaded[name] = engine_of(program, _object_code(program, name, contiguous))
            llvm.add_symbol(name, _loaded[name].get_function_address(name))
    return name


def name_of(program: Program, contiguous: Sequence[bool] | None = None) -> str:
    """Return the name of a program's code, the same in every process on this machine."""
    strided = [i for i, is_contiguous in enumerate(contiguous or ()) if not is_contiguous]
    key = "\n".join([compiler(), as_text(program), f"strided: {strided}"])
    return f"pymc_fastlogp.kernel.{sha256(key.encode()).hexdigest()}"


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
    path = config.base_compiledir / "numba" / f"{name}.o"
    if config.numba__cache and path.exists():
        return path.read_bytes()
    code = compile_program(program, name, contiguous)
    if config.numba__cache:
        _write(path, code)
    return code


def _write(path: Path, code: bytes) -> None:
    """Write a file that others see only when it is complete."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(code)
        Path(file.name).replace(path)
    except OSError as error:
        logger.info("a kernel is not kept on disk: %s", error)


def compile_program(program: Program, name: str, contiguous: Sequence[bool] | None = None) -> bytes:
    """Return the object code of a program's function, optimised for this CPU.

    Parameters
    ----------
    program : Program
        The program.
    name : str
        Of the function.
    contiguous : sequence of bool, optional
        For each input whether it is C-contiguous; all are by default.
    """
    machine = target_machine()
    module = ir.Module(name)
    emit(module, program, name, contiguous or [True] * len(program.inputs))
    return machine.emit_object(optimised(module, machine))
