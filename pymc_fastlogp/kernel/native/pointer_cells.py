"""Cells: eight bytes at a fixed address, which a symbol names, that hold an address that may change.

Machine code is cached on disk, so it contains symbols instead of addresses. LLVM resolves a symbol once per process, and
Numba never frees the code that it has linked. But an array, or the code of a kernel, is freed with the last
function that uses it, and may be created again at another address. So a symbol refers to a cell, which is never freed, and code
loads the current address from the cell.
"""

from ctypes import addressof, c_void_p

from llvmlite import binding as llvm
from llvmlite import ir

_cells: dict[str, c_void_p] = {}


def cell(symbol: str) -> c_void_p:
    """Return the cell of a symbol, initially empty, and register the symbol for code that is linked from now on."""
    found = _cells.setdefault(symbol, c_void_p())
    llvm.add_symbol(symbol, addressof(found))
    return found


def declared(module: ir.Module, symbol: str, type_: ir.Type) -> ir.GlobalVariable:
    """Declare a cell in a module, as a global variable of a pointer or integer type."""
    return module.globals.get(symbol) or ir.GlobalVariable(module, type_, symbol)
