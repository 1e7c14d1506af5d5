"""Cache of object code on disk, in a private folder next to the caches of PyTensor."""

from collections.abc import Callable
from hashlib import sha256

from llvmlite import ir
from pytensor.configdefaults import config

from pymc_fastlogp.file_cache import BoundedFiles
from pymc_fastlogp.kernel.native.loaded_code import compiler
from pymc_fastlogp.kernel.native.target import optimized, target_machine, verified

PREFIX = "pymc_fastlogp.kernel."
# Bytes of all files, enough for thousands of kernels of 10 to 100 kB each. The limit saves disk space and does not affect speed.
LIMIT = 256 * 2**20


def read_or_make(name: str, make: Callable[[], bytes]) -> bytes:
    """Return the code of a function from the cache, or make and cache it. The option ``numba__cache`` of PyTensor controls the cache."""
    if not config.numba__cache:
        return make()
    code = read(name)
    if code is None:
        code = make()
        write(name, code)
    return code


def object_code_of(module: ir.Module, *, with_passes: bool = True) -> bytes:
    """Return the object code of a module for this CPU, cached on disk. Short code without loops over scalars needs no passes of LLVM."""
    key = f"{compiler()}\nwith passes: {with_passes}\n{module}"

    def compiled() -> bytes:
        machine = target_machine()
        return machine.emit_object(optimized(module, machine) if with_passes else verified(module))

    name = f"{PREFIX}{sha256(key.encode()).hexdigest()}"
    return read_or_make(name, compiled)


def read(name: str) -> bytes | None:
    """Return the cached code of a function, None if there is no valid file."""
    return _bounded_files().read(f"{name}.o")


def write(name: str, code: bytes) -> None:
    """Cache the code of a function, whose name begins with the prefix."""
    _bounded_files().write(f"{name}.o", code)


def _bounded_files() -> BoundedFiles:
    return BoundedFiles(config.base_compiledir / "pymc_fastlogp", PREFIX, LIMIT)
