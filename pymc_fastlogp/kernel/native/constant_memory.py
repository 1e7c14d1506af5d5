"""Memory for large constants: held once in a process, and found by compiled code through a name.

Compiled code is kept on disk, so it must contain neither the address of an array nor, if the array is large,
its elements. It refers to a cell, see :mod:`pymc_fastlogp.kernel.native.pointer_cells`, by a name that is the hash of the array.
"""

import threading
from hashlib import sha256
from weakref import WeakValueDictionary

import numpy as np

from pymc_fastlogp.kernel.native.pointer_cells import cell


class Held:
    """An array, read-only and in C or Fortran order, that does not change or move while this object lives.

    The symbol is the name of its cell, the same in every process; equal for arrays of equal type, shape, layout and elements.
    """

    def __init__(self, symbol: str, array: np.ndarray):
        self.symbol = symbol
        self.array = array

    @property
    def layout(self) -> str:
        """The order of the elements, as Numba calls it."""
        return _layout(self.array)


_held: WeakValueDictionary[str, Held] = WeakValueDictionary()
_lock = threading.Lock()


def hold(array: np.ndarray) -> Held:
    """Return the memory of an array, a copy unless equal elements are held already.

    What owns its elements and is read-only is not copied: nobody can change it.
    """
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        array = np.ascontiguousarray(array)
    symbol = _symbol(array)
    with _lock:
        held = _held.get(symbol)
        if held is None:
            held = _held[symbol] = Held(symbol, _read_only(array))
            cell(symbol).value = held.array.ctypes.data
        return held


def _symbol(array: np.ndarray) -> str:
    layout = _layout(array)
    key = sha256(f"{array.dtype.str} {array.shape} {layout}".encode())
    key.update(array if layout == "C" else array.T)
    return f"pymc_fastlogp.held.{key.hexdigest()}"


def _layout(array: np.ndarray) -> str:
    return "C" if array.flags.c_contiguous else "F"


def _read_only(array: np.ndarray) -> np.ndarray:
    if array.flags.writeable or not array.flags.owndata:
        array = array.copy(order="K")
        array.flags.writeable = False
    return array
