"""Private llvmlite APIs: free a pass manager."""

from llvmlite import binding as llvm


def free(manager: llvm.ModulePassManager) -> None:
    """Free a pass manager and the analyses that its passes cache, half a megabyte for a typical kernel.

    llvmlite does not free them: the first base class in the method resolution order has an empty ``_dispose``.
    """
    llvm.NewPassManager._dispose(manager)
    manager.detach()
