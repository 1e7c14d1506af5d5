"""PyTensor's scalar Ops on LLVM vectors: the table from Op to instructions."""

from pymc_fastlogp.kernel.scalars.emission import (
    emit,
    emit_shared,
    externals,
    is_supported,
    is_supported_loop,
)
from pymc_fastlogp.kernel.scalars.forms import constant, from_memory, memory_type, to_memory
from pymc_fastlogp.kernel.scalars.loops import results_of
from pymc_fastlogp.kernel.scalars.table import ROWS, SHARED_OPS
from pymc_fastlogp.kernel.scalars.upstream import External

__all__ = [
    "ROWS",
    "SHARED_OPS",
    "External",
    "constant",
    "emit",
    "emit_shared",
    "externals",
    "from_memory",
    "is_supported",
    "is_supported_loop",
    "memory_type",
    "results_of",
    "to_memory",
]
