"""The CPU of this machine, as LLVM sees it."""

from llvmlite import binding as llvm
from llvmlite import ir

from pymc_fastlogp._upstream.llvmlite import free

# The widest first: a CPU with AVX-512 has AVX too. 128 bits is what SSE2 and NEON have.
NATIVE_LANES = (("avx512f", 8), ("avx", 4))
SMALLEST_NATIVE_LANES = 2
# Vectors that a loop works on at a time (``python -m benchmarks.limits``).
IN_FLIGHT = 2


def default_width() -> int:
    """Return the lanes of two native vectors of this CPU, so that their latencies overlap."""
    features = llvm.get_host_cpu_features()
    native = next((n for name, n in NATIVE_LANES if features.get(name)), SMALLEST_NATIVE_LANES)
    return IN_FLIGHT * native


def target_machine() -> llvm.TargetMachine:
    """Return what makes code for this CPU, with all its features, at optimisation level 3."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )


def optimised(module: ir.Module, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """Verify a module, run LLVM's passes of level 3 on it, and verify what they return.

    SROA of LLVM 22 puts the join of two halves of an array before the second of them where that is the lower one
    (``docs/upstream.md``), which makes the code generator end the process. Arrays that stay in memory are not its concern.
    """
    parsed = _parsed(module)
    try:
        _run_passes(parsed, machine)
    except RuntimeError:
        keep_in_memory(module)
        parsed = _parsed(module)
        _run_passes(parsed, machine)
    return parsed


def keep_in_memory(module: ir.Module) -> None:
    """Make LLVM believe that somebody else may look at the arrays on the stack."""
    looked_at = ir.FunctionType(ir.VoidType(), [ir.PointerType()])
    for function in module.functions:
        for block in function.basic_blocks:
            arrays = [x for x in block.instructions if _is_array_on_stack(x)]
            for x in arrays:
                builder = ir.IRBuilder(block)
                builder.position_after(x)
                builder.asm(looked_at, "", "r,~{memory}", [x], side_effect=True)


def _is_array_on_stack(x: ir.Instruction) -> bool:
    return isinstance(x, ir.AllocaInstr) and isinstance(x.allocated_type, ir.ArrayType)


def _parsed(module: ir.Module) -> llvm.ModuleRef:
    parsed = llvm.parse_assembly(str(module), llvm.create_context())
    parsed.verify()
    return parsed


def _run_passes(parsed: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    passes = llvm.create_pass_builder(machine, options)
    manager = passes.getModulePassManager()
    manager.run(parsed, passes)
    free(manager)
    parsed.verify()
