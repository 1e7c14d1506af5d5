"""The machine code of a program for each layout of its inputs, where Numba's code finds it.

A kernel stays out of the modules that call it, which Numba optimizes and compiles again at each level that links
them. They read the address from a cell, see :mod:`pymc_fastlogp.kernel.native.kernels`. The code for C order is loaded with the kernel. What else is needed Numba knows only when it
compiles the function around a kernel, and not again when it takes that from its cache on disk. So that
function asks for any other layout when it runs. The code for it reads through strides: on matrices of 5 to
1000 rows this took less time than to copy them first.
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
# Of an address, which atomic loads and stores have to state.
ALIGNMENT = 8

logger = logging.getLogger("pymc_fastlogp")


@CFUNCTYPE(None, c_char_p, c_char_p, c_void_p)
def _for_layout(name: bytes, layout: bytes, to: int) -> None:
    """Write where the cell of the code for a layout is, nothing if there is no code.

    It is not returned: machine code called, so nobody catches Ctrl-C, after which ctypes returns what lies there.
    """
    try:
        found = addressof(loaded(name.decode()).load(layout.decode()))
        c_void_p.from_address(to).value = found
    except Exception:
        logger.exception("a kernel was not compiled for the layout %s of its inputs", layout)


llvm.add_symbol(SYMBOL, cast(_for_layout, c_void_p).value)


def emit_address(frame: Frame, name: str, layout: str) -> ir.Value:
    """Append code that returns the address of a kernel's machine code as an integer, 0 if there is none.

    The layout has a letter for each input, as Numba calls it.
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
    """Return a variable that only this module sees."""
    variable = cgutils.add_global_variable(module, type_, f"pymc_fastlogp.{name}")
    variable.linkage = "private"
    variable.initializer = value
    return variable
