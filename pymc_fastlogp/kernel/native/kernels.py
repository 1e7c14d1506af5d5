"""Loaded kernels: programs with machine code for each layout of the inputs, during the lifetime of their callers.

The caller of a kernel reads its address from a cell, see :mod:`pymc_fastlogp.kernel.native.pointer_cells`. The symbol of the cell consists of the name
of the code in C order and the layout of each input. Machine code is freed with the last function that calls the kernel. Its cells are then
empty, so a later call raises an error instead of crashing.
"""

import threading
from ctypes import c_void_p
from weakref import WeakValueDictionary, finalize

from pymc_fastlogp.kernel.ir.loops import Program
from pymc_fastlogp.kernel.native import machine_code
from pymc_fastlogp.kernel.native.pointer_cells import cell


class Kernel:
    """A program and its machine code for each layout.

    The name identifies the machine code for inputs in C order, and is the same in every process on this machine.
    """

    def __init__(self, program: Program, name: str):
        self.program = program
        self.name = name
        self._codes: dict[str, machine_code.LoadedCode] = {}
        self._lock = threading.Lock()

    def load(self, layout: str) -> c_void_p:
        """Return the cell of the code for a layout, which is a letter for each input: ``C``, or another letter for a strided input."""
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


def load(program: Program) -> Kernel:
    """Return the kernel of a program, with its code for inputs in C order loaded. Equal programs share a kernel."""
    name = machine_code.name_of(program)
    with _lock:
        kernel = _kernels.get(name)
        if kernel is None:
            kernel = _kernels[name] = Kernel(program, name)
    kernel.load("C" * len(program.inputs))
    return kernel


def _empty(place: c_void_p, address: int) -> None:
    """Empty a cell, unless equal code has been loaded in the meantime."""
    if place.value == address:
        place.value = None


def loaded(name: str) -> Kernel:
    """Return a loaded kernel by its name.

    Raises
    ------
    KeyError
        If the kernel was never loaded, or has been freed.
    """
    return _kernels[name]
