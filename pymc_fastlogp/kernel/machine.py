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
    manager = passes.getModulePassManager()
    manager.run(parsed, passes)
    _free(manager)
    return parsed


def _free(manager: llvm.ModulePassManager) -> None:
    """Free a pass manager with what its passes remember of a module, half a megabyte for a typical kernel.

    llvmlite does not: of the two base classes with a method for it, the one with an empty method comes first.
    """
    llvm.NewPassManager._dispose(manager)
    manager.detach()
