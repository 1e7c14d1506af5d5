"""Code for inputs that are not in C order, compiled when it is first called.

The code of a program takes inputs in C order. What Numba knows of the layout of arrays, it knows only when it
compiles the function around a kernel, and not again when it takes that from its cache on disk. So
for any other layout that function asks for an address when it runs, by the name of the code for C order
and the layout of each input. That code reads through strides: on matrices of 5 to 1000 rows this took less time
than to copy them first.
"""

import logging
from ctypes import CFUNCTYPE, c_char_p, c_void_p, cast

from llvmlite import binding as llvm
from llvmlite import ir
from numba.core import cgutils

from pymc_fastlogp.kernel.ir.loops import Program
from pymc_fastlogp.kernel.native import machine_code

I64 = ir.IntType(64)
SYMBOL = "pymc_fastlogp.kernel.for_layout"
ALIGNMENT = 8

logger = logging.getLogger("pymc_fastlogp")

_programs: dict[str, Program] = {}


def load(program: Program) -> str:
    """Make the code of a program callable by name, for any layout of its inputs, and return the name."""
    name = machine_code.load(program)
    _programs[name] = program
    return name


@CFUNCTYPE(c_void_p, c_char_p, c_char_p)
def _for_layout(name: bytes, layout: bytes) -> int:
    """Return the address of the code for a layout: for each input C, or another letter."""
    try:
        program = _programs[name.decode()]
        variant = machine_code.load(program, [letter == "C" for letter in layout.decode()])
        return llvm.address_of_symbol(variant)
    except Exception:
        # Machine code called, so there is nobody to catch it.
        logger.exception("a kernel was not compiled for the layout %s of its inputs", layout)
        return 0


llvm.add_symbol(SYMBOL, cast(_for_layout, c_void_p).value)


def emit_address(context, builder, name: str, layout: str) -> ir.Value:  # type: ignore[no-untyped-def]
    """Append code that asks for the address when it first runs, and return it; 0 if there is none.

    Parameters
    ----------
    context : numba.core.base.BaseContext
        Of Numba.
    builder : llvmlite.ir.IRBuilder
        Where instructions go.
    name : str
        What :func:`load` returned.
    layout : str
        The layout of each input, as Numba calls it.
    """
    known = cgutils.add_global_variable(builder.module, I64, f"{name}.{layout}")
    known.linkage = "private"
    known.initializer = I64(0)
    address = cgutils.alloca_once_value(builder, builder.load_atomic(known, "acquire", ALIGNMENT))
    with builder.if_then(cgutils.is_null(builder, builder.load(address)), likely=False):
        strings = [context.insert_const_string(builder.module, text) for text in (name, layout)]
        type_ = ir.FunctionType(I64, [string.type for string in strings])
        for_layout = cgutils.get_or_insert_function(builder.module, type_, SYMBOL)
        found = builder.call(for_layout, strings)
        builder.store(found, address)
        builder.store_atomic(found, known, "release", ALIGNMENT)
    return builder.load(address)
