"""The code generator: a program of loops becomes one LLVM function. It knows nothing of Numba."""

from pymc_fastlogp.kernel.emit.kernel import OUT_OF_MEMORY, emit, emit_size
from pymc_fastlogp.kernel.emit.native import NativeKernel, compile_native

__all__ = ["OUT_OF_MEMORY", "NativeKernel", "compile_native", "emit", "emit_size"]
