"""Addresses of the machine code of a kernel for each layout of its inputs.

A kernel is not part of the modules that call it, because Numba optimizes and compiles a module again at each level that links
it. The callers load the address from a cell, see :mod:`pymc_fastlogp.kernel.native.kernels`.

The code for inputs in C order is loaded with the kernel. Other layouts are known to Numba only while it
compiles the calling function, and not if that function comes from the cache on disk. So the calling
function requests the code for any other layout at run time. That code reads its inputs through strides, which takes less time than a copy
for matrices of 5 to 1000 rows.
"""

import logging
from ctypes import CFUNCTYPE, addressof, c_char_p, c_void_p, cast
from typing import Any

from llvmlite import binding as llvm
from llvmlite import ir

from pymc_fastlogp._upstream.numba import Frame, cgutils
from pymc_fastlogp.kernel.llvm import I64
from pymc_fastlogp.kernel.native.kernels import loaded
from pymc_fastlogp.kernel.native.pointer_cells import declared

CELL = I64.as_pointer()
SYMBOL = "pymc_fastlogp.kernel.for_layout"
# Alignment in bytes of an address, which atomic loads and stores require.
ALIGNMENT = 8

logger = logging.getLogger("pymc_fastlogp")


@CFUNCTYPE(None, c_char_p, c_char_p, c_void_p)
def _for_layout(name: bytes, layout: bytes, to: int) -> None:
    """Write the address of the cell for a layout to ``to``, or nothing if compilation fails.

    The address is not returned, because machine code cannot catch a KeyboardInterrupt. ctypes would then return an undefined value.
    """
    try:
        found = addressof(loaded(name.decode()).load(layout.decode()))
        c_void_p.from_address(to).value = found
    except Exception:
        logger.exception("Compilation of a kernel for the input layout %s failed.", layout)


llvm.add_symbol(SYMBOL, cast(_for_layout, c_void_p).value)


def emit_address(frame: Frame, name: str, layout: str) -> ir.Value:
    """Append code that loads the address of the machine code of a kernel as an integer, 0 if there is no code.

    ``layout`` has a letter for each input, in the notation of Numba.
    """
    builder, module = frame.builder, frame.builder.module
    if set(layout) <= {"C"}:
        return builder.load(declared(module, f"{name}.{layout}", I64))
    nothing = _variable(module, "nothing", I64, I64(0))
    place = _variable(module, "place", CELL, nothing)
    known = builder.load_atomic(place, "acquire", ALIGNMENT)
    address = cgutils.alloca_once_value(builder, builder.load(known))
    with builder.if_then(cgutils.is_null(builder, builder.load(address)), likely=False):
        to = cgutils.alloca_once_value(builder, nothing)
        arguments = [*(frame.text(text) for text in (name, layout)), to]
        type_ = ir.FunctionType(ir.VoidType(), [each.type for each in arguments])
        builder.call(cgutils.get_or_insert_function(module, type_, SYMBOL), arguments)
        found = builder.load(to)
        builder.store_atomic(found, place, "release", ALIGNMENT)
        builder.store(builder.load(found), address)
    return builder.load(address)


def _variable(module: ir.Module, name: str, type_: ir.Type, value: Any) -> ir.GlobalVariable:
    """Add a private global variable to a module."""
    variable = cgutils.add_global_variable(module, type_, f"pymc_fastlogp.{name}")
    variable.linkage = "private"
    variable.initializer = value
    return variable
