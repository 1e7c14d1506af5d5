"""Code generation: LLVM IR from a program of loops. Independent of Numba."""

from pymc_fastlogp.kernel.emit.function import OUT_OF_MEMORY, signature
from pymc_fastlogp.kernel.emit.kernel import emit, emit_shapes

__all__ = ["OUT_OF_MEMORY", "emit", "emit_shapes", "signature"]
