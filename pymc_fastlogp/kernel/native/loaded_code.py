"""Machine code loaded into memory, by LLVM alone: a process with cached code does not import the kernel compiler."""

import os
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

from llvmlite import __version__ as llvmlite_version
from llvmlite import binding as llvm

from pymc_fastlogp.kernel.native.target import (
    checks_bounds,
    features,
    target_machine,
    uses_gathers,
)

KERNEL = Path(__file__).parents[1]


class LoadedCode:
    """Machine code of one function, loaded into memory.

    Attributes
    ----------
    address : int
        Address of the function, valid during the lifetime of this object.
    """

    def __init__(self, engine: llvm.ExecutionEngine, name: str):
        self._engine = engine
        self.address = engine.get_function_address(name)

    def variable(self, name: str) -> int:
        """Return the address of a global variable of the code, 0 if the code has none of this name."""
        return self._engine.get_global_value_address(name)

    def __reduce__(self) -> str:
        raise TypeError("machine code can be neither copied nor pickled: compile the model again")


def engine(code: bytes) -> llvm.ExecutionEngine:
    """Load object code whose symbols are bound. The returned LLVM engine owns the memory."""
    loaded = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine())
    loaded.add_object_file(llvm.ObjectFileRef.from_data(code))
    loaded.finalize_object()
    return loaded


@cache
def compiler() -> str:
    """Describe everything besides the program that machine code depends on: sources, LLVM, CPU and settings."""
    cpu, gathers = llvm.get_host_cpu_name(), f"uses gathers: {uses_gathers()}"
    bounds = f"checks bounds: {checks_bounds()}"
    return "\n".join([state_of_sources(KERNEL), llvmlite_version, cpu, features(), gathers, bounds])


@cache
def state_of_sources(folder: Path) -> str:
    """Return a hash of the names, sizes and modification times of all Python files below a folder.

    Python uses the same attributes to decide whether bytecode is current. Reading the contents would take five times as long.
    """
    return sha256("\n".join(sorted(_file_states(str(folder)))).encode()).hexdigest()


def _file_states(folder: str) -> Iterator[str]:
    """Yield path, size and modification time of each Python file of a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _file_states(entry.path)
            elif entry.name.endswith(".py"):
                state = entry.stat()
                yield f"{entry.path} {state.st_size} {state.st_mtime_ns}"
