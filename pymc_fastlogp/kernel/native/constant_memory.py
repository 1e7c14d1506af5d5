"""Memory of large constants, shared within a process. Machine code reads the memory through a symbol.

Machine code is cached on disk, so it cannot contain the address of an array. The elements of a large array would take too much space.
The code refers to a cell instead, see :mod:`pymc_fastlogp.kernel.native.pointer_cells`, whose symbol is the hash of the array.
"""

import threading
from hashlib import sha256
from weakref import WeakValueDictionary

import numpy as np

from pymc_fastlogp.kernel.native.pointer_cells import cell


class HeldArray:
    """A read-only array in C or Fortran order, whose address is constant during the lifetime of this object.

    Attributes
    ----------
    symbol : str
        Symbol of the cell with the address, a hash of dtype, shape, layout and elements. It is the same in every process.
    array : numpy.ndarray
        The array.
    """

    def __init__(self, symbol: str, array: np.ndarray):
        self.symbol = symbol
        self.array = array

    @property
    def layout(self) -> str:
        """Order of the elements in the notation of Numba: ``C`` or ``F``."""
        return _layout(self.array)


_held: WeakValueDictionary[str, HeldArray] = WeakValueDictionary()
_lock = threading.Lock()


def hold_array(array: np.ndarray) -> HeldArray:
    """Return the shared memory of an array; equal arrays share one copy.

    A read-only array that owns its elements is not copied, because its elements cannot change.
    """
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        array = np.ascontiguousarray(array)
    symbol = _symbol(array)
    with _lock:
        held = _held.get(symbol)
        if held is None:
            held = _held[symbol] = HeldArray(symbol, _read_only(array))
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
