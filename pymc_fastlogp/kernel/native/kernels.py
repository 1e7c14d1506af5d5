"""Programs with their machine code, one for each layout of the inputs, as long as somebody calls it.

Code that calls a kernel reads its address from a cell, see :mod:`pymc_fastlogp.kernel.native.pointer_cells`, whose name is that of the code in C order and the layout
of each input. Code is freed with the last function that calls the kernel. Then its cells are empty, and a call that should come
nevertheless is an error, not a crash.
"""

import threading
from ctypes import c_void_p
from weakref import WeakValueDictionary, finalize

from pymc_fastlogp.kernel.ir.loops import Program
from pymc_fastlogp.kernel.native import machine_code
from pymc_fastlogp.kernel.native.pointer_cells import cell


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


def loaded(name: str) -> Kernel:
    """Return the kernel of a name that was loaded, and is still used.

    Raises
    ------
    KeyError
        If there is none.
    """
    return _kernels[name]
