"""The code generator: a program of loops becomes one LLVM function. It knows nothing of Numba."""

from pymc_fastlogp.kernel.emit.function import OUT_OF_MEMORY, signature
from pymc_fastlogp.kernel.emit.kernel import emit, emit_shapes

__all__ = ["OUT_OF_MEMORY", "emit", "emit_shapes", "signature"]
