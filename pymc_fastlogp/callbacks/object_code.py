"""Machine code of callbacks, from disk if it is there."""

from hashlib import sha256

from llvmlite import ir

from pymc_fastlogp.kernel.native import object_files
from pymc_fastlogp.kernel.native.code import compiler
from pymc_fastlogp.kernel.native.target import optimized, target_machine


def object_code_of(module: ir.Module) -> bytes:
    """Return the object code of a module, optimized for this CPU."""
    key = f"{compiler()}\n{module}"

    def made() -> bytes:
        machine = target_machine()
        return machine.emit_object(optimized(module, machine))

    name = f"{object_files.PREFIX}{sha256(key.encode()).hexdigest()}"
    return object_files.read_or_make(name, made)
