"""The CPU of this machine, as LLVM sees it, and what code for it is like."""

import os
from typing import NamedTuple

from llvmlite import binding as llvm
from llvmlite import ir

from pymc_fastlogp._upstream.llvmlite import free

# The widest first: a CPU with AVX-512 has AVX too. 128 bits is what SSE2 and NEON have.
NATIVE_LANES = (("avx512f", 8), ("avx", 4))
SMALLEST_NATIVE_LANES = 2
# Vectors that a loop works on at a time (``python -m benchmarks.limits``).
IN_FLIGHT = 2
# Whether loads and stores are checked, which is for tests: see :mod:`pymc_fastlogp.kernel.emit.bounds`.
CHECK_BOUNDS = "PYMC_FASTLOGP_CHECK_BOUNDS"


class Tuning(NamedTuple):
    """A decision for a family of CPUs.

    Attributes
    ----------
    family : str
        Start of LLVM's names of these CPUs.
    uses_gathers : bool
        Whether gather and scatter instructions are used. Otherwise each lane is loaded and stored on its own.
    features : tuple of str
        LLVM features that are added to those of the host.
    """

    family: str
    uses_gathers: bool
    features: tuple[str, ...] = ()


# The first row whose family matches decides.
TUNINGS = (
    # On Zen 4, `vpgatherqq` is microcoded and takes longer than loads of the same elements.
    Tuning("znver", uses_gathers=False, features=("+prefer-no-gather", "+prefer-no-scatter")),
    Tuning("", uses_gathers=True),
)


def tuning() -> Tuning:
    """Return the decision for this CPU."""
    name = llvm.get_host_cpu_name()
    return next(each for each in TUNINGS if name.startswith(each.family))


def uses_gathers() -> bool:
    """Return whether code has gather and scatter instructions; LLVM has both for AVX-512, and splits them elsewhere."""
    return bool(llvm.get_host_cpu_features().get("avx512f")) and tuning().uses_gathers


def features() -> str:
    """Return the features that code is made for: those of this CPU, and those of its tuning."""
    return ",".join([llvm.get_host_cpu_features().flatten(), *tuning().features])


def default_width() -> int:
    """Return the lanes of two native vectors of this CPU, so that their latencies overlap."""
    return IN_FLIGHT * native_lanes()


def native_lanes() -> int:
    """Return the lanes of a native vector of this CPU."""
    features = llvm.get_host_cpu_features()
    return next((n for name, n in NATIVE_LANES if features.get(name)), SMALLEST_NATIVE_LANES)


def checks_bounds() -> bool:
    """Return whether code is to be made that checks its loads and stores."""
    return os.environ.get(CHECK_BOUNDS, "0") == "1"


def target_machine() -> llvm.TargetMachine:
    """Return what makes code for this CPU, with all its features and its tuning, at optimization level 3."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features(), opt=3
    )


def optimized(module: ir.Module, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """Verify a module, run LLVM's passes of level 3 on it, and verify what they return.

    Raises
    ------
    RuntimeError
        If it is invalid, of which the code generator would make wrong code, or end the process.
    """
    parsed = llvm.parse_assembly(str(module), llvm.create_context())
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    passes = llvm.create_pass_builder(machine, options)
    manager = passes.getModulePassManager()
    manager.run(parsed, passes)
    free(manager)
    parsed.verify()
    return parsed


def tile_length() -> int:
    """Return the rows of a tile of a matrix: the lanes of a native vector of eight or four."""
    return 8 if llvm.get_host_cpu_features().get("avx512f") else 4
