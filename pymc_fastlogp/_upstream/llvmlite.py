"""Private llvmlite APIs: free a pass manager."""

from llvmlite import binding as llvm


def free(manager: llvm.ModulePassManager) -> None:
    """Free a pass manager with what its passes remember of a module, half a megabyte for a typical kernel.

    llvmlite does not: of the two base classes with a method for it, the one with an empty method comes first.
    """
    llvm.NewPassManager._dispose(manager)
    manager.detach()
