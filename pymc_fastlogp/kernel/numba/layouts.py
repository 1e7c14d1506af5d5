"""The machine code of a program for each layout of its inputs, where Numba's code finds it.

A kernel stays out of the modules that call it, which Numba optimises and compiles again at each level that links
them. They read the address from a cell, see :mod:`pymc_fastlogp.kernel.numba.cells`, whose name is that of the code in C order and the layout
of each input. The code for C order is loaded with the kernel. What else is needed Numba knows only when it
compiles the function around a kernel, and not again when it takes that from its cache on disk. So that
function asks for any other layout when it runs. The code for it reads through strides: on matrices of 5 to
1000 rows this took less time than to copy them first.

Code is freed with the last function that calls the kernel. Then its cells are empty, and a call that should come
nevertheless is an error, not a crash.
"""

import logging
import threading
from ctypes import CFUNCTYPE, addressof, c_char_p, c_void_p, cast
from typing import Any
from weakref import WeakValueDictionary, finalize

from llvmlite import binding as llvm
from llvmlite import ir

from pymc_fastlogp._upstream.numba import Frame, cgutils
from pymc_fastlogp.kernel.ir.loops import Program
from pymc_fastlogp.kernel.llvm import I64
from pymc_fastlogp.kernel.native import machine_code
from pymc_fastlogp.kernel.numba.cells import cell, declared

CELL = I64.as_pointer()
SYMBOL = "pymc_fastlogp.kernel.for_layout"
# Of an address, which atomic loads and stores have to state.
ALIGNMENT = 8

logger = logging.getLogger("pymc_fastlogp")


class Kernel:
    """A program and its machine code, whose name for inputs in C order is the same in every process on this machine."""

    def __init__(self, program: Program, name: str):
        self.program = program
        self.name = name
        self._codes: dict[str, machine_code.Code] = {}
        self._lock = threading.Lock()

    def load(self, layout: str) -> c_void_p:
        """Return the cell of the code for a layout: for each input C, or another letter."""
        place = cell(f"{self.name}.{layout}")
        with self._lock:
            if layout not in self._codes:
                code = machine_code.load(self.program, [letter == "C" for letter in layout])
                finalize(code, _empty, place, code.address).atexit = False
                self._codes[layout] = code
                place.value = code.address
        return place


_kernels: WeakValueDictionary[str, Kernel] = WeakValueDictionary()
_lock = threading.Lock()
_nothing = c_void_p()


def load(program: Program) -> Kernel:
    """Return a program with its code for inputs in C order, one for equal programs."""
    name = machine_code.name_of(program)
    with _lock:
        kernel = _kernels.get(name)
        if kernel is None:
            kernel = _kernels[name] = Kernel(program, name)
    kernel.load("C" * len(program.inputs))
    return kernel


def _empty(place: c_void_p, address: int) -> None:
    """Empty a cell, unless equal code has been loaded since."""
    if place.value == address:
        place.value = None


@CFUNCTYPE(c_void_p, c_char_p, c_char_p)
def _for_layout(name: bytes, layout: bytes) -> int:
    """Return the address of the cell of the code for a layout, of an empty one if there is no code."""
    try:
        return addressof(_kernels[name.decode()].load(layout.decode()))
    except Exception:
        # Machine code called, so there is nobody to catch it.
        logger.exception("a kernel was not compiled for the layout %s of its inputs", layout)
        return addressof(_nothing)


llvm.add_symbol(SYMBOL, cast(_for_layout, c_void_p).value)


def emit_address(frame: Frame, name: str, layout: str) -> ir.Value:
    """Append code that returns the address of a kernel's machine code as an integer, 0 if there is none.

    The layout has a letter for each input, as Numba calls it.
    """
    builder, module = frame.builder, frame.builder.module
    if set(layout) <= {"C"}:
        return builder.load(declared(module, f"{name}.{layout}", I64))
    place = _variable(module, "place", CELL, _variable(module, "nothing", I64, I64(0)))
    known = builder.load_atomic(place, "acquire", ALIGNMENT)
    address = cgutils.alloca_once_value(builder, builder.load(known))
    with builder.if_then(cgutils.is_null(builder, builder.load(address)), likely=False):
        strings = [frame.text(text) for text in (name, layout)]
        type_ = ir.FunctionType(CELL, [string.type for string in strings])
        found = builder.call(cgutils.get_or_insert_function(module, type_, SYMBOL), strings)
        builder.store_atomic(found, place, "release", ALIGNMENT)
        builder.store(builder.load(found), address)
    return builder.load(address)


def _variable(module: ir.Module, name: str, type_: ir.Type, value: Any) -> ir.GlobalVariable:
    """Return a variable that only this module sees."""
    variable = cgutils.add_global_variable(module, type_, f"pymc_fastlogp.{name}")
    variable.linkage = "private"
    variable.initializer = value
    return variable
