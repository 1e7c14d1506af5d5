"""Cells: eight bytes that stay where they are, found by name, with an address that may change.

Compiled code is kept on disk, so it contains names, never addresses. LLVM resolves a name once in a process, and
Numba frees none of the code that it has linked; but an array and the code of a kernel are freed with the last
function that uses them, and may be made again elsewhere. So a name stands for a cell, which stays for good, and code
reads the address from it each time.
"""

from ctypes import addressof, c_void_p

from llvmlite import binding as llvm
from llvmlite import ir

_cells: dict[str, c_void_p] = {}


def cell(symbol: str) -> c_void_p:
    """Return the cell of a name, which is empty unless it was set; code that is linked from now on finds it."""
    found = _cells.setdefault(symbol, c_void_p())
    llvm.add_symbol(symbol, addressof(found))
    return found


def declared(module: ir.Module, symbol: str, type_: ir.Type) -> ir.GlobalVariable:
    """Return a cell as code sees it: a variable of some type of pointer or integer."""
    return module.globals.get(symbol) or ir.GlobalVariable(module, type_, symbol)
