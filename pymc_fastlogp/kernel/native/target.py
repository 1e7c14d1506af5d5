"""Compilation target: the host CPU, its vector widths, and settings for CPU families."""

import os
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from llvmlite import binding as llvm
from llvmlite import ir

from pymc_fastlogp._upstream.llvmlite import free

# Lanes of float64 by CPU feature, the widest first: a CPU with AVX-512 has AVX, too. SSE2 and NEON have 128 bits.
NATIVE_LANES = (("avx512f", 8), ("avx", 4))
SMALLEST_NATIVE_LANES = 2
# Number of native vectors that one iteration of a loop computes (``python -m benchmarks.limits``).
IN_FLIGHT = 2
# Environment variable that turns on bounds checks, for tests: see :mod:`pymc_fastlogp.kernel.emit.bounds`.
CHECK_BOUNDS = "PYMC_FASTLOGP_CHECK_BOUNDS"


class Tuning(NamedTuple):
    """Settings for a family of CPUs.

    Attributes
    ----------
    family : str
        Common prefix of the LLVM names of these CPUs.
    uses_gathers : bool
        Whether to use gather and scatter instructions. Otherwise each lane is loaded and stored separately.
    features : tuple of str
        LLVM features to add to the features of the host.
    """

    family: str
    uses_gathers: bool
    features: tuple[str, ...] = ()


# The first row with a matching family applies.
TUNINGS = (
    # On Zen 4, `vpgatherqq` is microcoded and takes longer than loads of the same elements.
    Tuning("znver", uses_gathers=False, features=("+prefer-no-gather", "+prefer-no-scatter")),
    Tuning("", uses_gathers=True),
)


def host_features() -> llvm.FeatureMap:
    """Return the features of this CPU, read once: LLVM takes a quarter of a millisecond."""
    return _read_once(llvm.get_host_cpu_features)


@cache
def _read_once(read: Callable[[], llvm.FeatureMap]) -> llvm.FeatureMap:
    return read()


def tuning() -> Tuning:
    """Return the settings for this CPU."""
    name = llvm.get_host_cpu_name()
    return next(each for each in TUNINGS if name.startswith(each.family))


def uses_gathers() -> bool:
    """Return whether to use gather and scatter instructions, which LLVM selects for AVX-512 and splits into scalars otherwise."""
    return bool(host_features().get("avx512f")) and tuning().uses_gathers


def features() -> str:
    """Return the LLVM features of the target: of this CPU, and of its settings."""
    return ",".join([host_features().flatten(), *tuning().features])


def default_width() -> int:
    """Return the number of lanes of a loop: two native vectors, whose latencies overlap."""
    return IN_FLIGHT * native_lanes()


def native_lanes() -> int:
    """Return the number of lanes of a native vector of this CPU."""
    features = host_features()
    return next((n for name, n in NATIVE_LANES if features.get(name)), SMALLEST_NATIVE_LANES)


def checks_bounds() -> bool:
    """Return whether kernels check the bounds of loads and stores."""
    return os.environ.get(CHECK_BOUNDS, "0") == "1"


def target_machine() -> llvm.TargetMachine:
    """Return the LLVM target machine for this CPU, with all of its features, at optimization level 3."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features(), opt=3
    )


def verified(module: ir.Module) -> llvm.ModuleRef:
    """Parse and verify a module.

    Raises
    ------
    RuntimeError
        If the module is invalid. LLVM would miscompile it or abort the process.
    """
    parsed = llvm.parse_assembly(str(module), llvm.create_context())
    parsed.verify()
    return parsed


def optimized(module: ir.Module, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """Verify a module, run the LLVM passes of level 3, and verify the result."""
    parsed = verified(module)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    passes = llvm.create_pass_builder(machine, options)
    manager = passes.getModulePassManager()
    manager.run(parsed, passes)
    free(manager)
    parsed.verify()
    return parsed


def tile_length() -> int:
    """Return the number of rows of a register tile: 8 with AVX-512, else 4."""
    return 8 if host_features().get("avx512f") else 4
