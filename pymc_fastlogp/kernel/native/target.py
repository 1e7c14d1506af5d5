"""The CPU of this machine, as LLVM sees it."""

from llvmlite import binding as llvm
from llvmlite import ir


def target_machine() -> llvm.TargetMachine:
    """Return what makes code for this CPU, with all its features, at optimisation level 3."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )


def optimised(module: ir.Module, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """Verify a module and run LLVM's passes of level 3 on it."""
    parsed = llvm.parse_assembly(str(module), llvm.create_context())
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(parsed, passes)
    return parsed
