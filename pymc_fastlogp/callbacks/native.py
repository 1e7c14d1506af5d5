"""Native side of a callback: machine code, user data and status codes.

A callback is a C function with nutpie's signature, see :mod:`pymc_fastlogp.callbacks.emit`. It returns a status code:

.. code-block:: text

    0                        success
    WRONG_LENGTH             a length differs from the model's
    RAISED, EXPAND_RAISED    upstream raises here, in the callback of logp and in the callback of stored values
    BAD_GRADIENT, BAD_LOGP   the gradient or logp is infinite or NaN; both are written nevertheless

The last argument of a callback is the user data. nutpie defines the first part: a record ``shared`` with address, size and shape of each shared
variable, which ``with_data`` of nutpie rewrites. The second part holds the addresses of kernels and constants.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from weakref import finalize

import numpy as np

from pymc_fastlogp.kernel.native import blas
from pymc_fastlogp.kernel.native.loaded_code import LoadedCode, engine
from pymc_fastlogp.model_cache.record import CallbackCode

WRONG_LENGTH, RAISED, EXPAND_RAISED, BAD_GRADIENT, BAD_LOGP = -1, 1, -2, 3, 4
# Name of the function in the object code of a callback.
SYMBOL = "callback"


class Called(Protocol):
    """Function that a callback calls in place of a kernel.

    Attributes
    ----------
    address : int
        Address of a C function, valid during the lifetime of the object.
    """

    address: int


class DirectCallback:
    """Loaded machine code of a callback.

    Parameters
    ----------
    code : CallbackCode
        The object code.
    called : Called, optional
        The called function, if it is not the kernel of ``code``.
    n_helpers : int
        Number of helper threads for long loops of the kernel. They end with the object.

    Attributes
    ----------
    address : int
        Address of the callback, valid during the lifetime of the object.
    addresses : list of int
        Addresses that the callback reads from the user data.
    """

    def __init__(self, code: CallbackCode, called: Called | None = None, n_helpers: int = 0):
        blas.bind(code.library)
        self._called = called
        if code.kernel:
            self._called = LoadedCode(engine(code.kernel_code), code.kernel)
            if n_helpers:
                self._start_helpers(self._called, n_helpers)
        self._callback = LoadedCode(engine(code.callback_code), SYMBOL)
        self._constants = code.constants
        self.address = self._callback.address
        address = self._called.address if self._called else 0
        self.addresses = [address, *(x.ctypes.data for x in code.constants)]

    def _start_helpers(self, kernel: LoadedCode, n_helpers: int) -> None:
        # Compiles the protocol of the threads.
        from pymc_fastlogp.kernel.threads.helpers import Helpers, has_tasks

        if has_tasks(kernel):
            helpers = Helpers(n_helpers, kernel)
            finalize(self, helpers.close).atexit = False


def record_type(shared: Mapping[str, np.ndarray], n_addresses: int) -> np.dtype:
    """Return the dtype of the user data.

    Parameters
    ----------
    shared : mapping of str to ndarray
        Shared data by nutpie's keys.
    n_addresses : int
        Number of addresses in the second part.
    """
    parts = [
        ("data", [(key, np.uintp) for key in shared]),
        ("size", [(key, np.uintp) for key in shared]),
        ("shape", [(key, np.uint, (x.ndim,)) for key, x in shared.items()]),
    ]
    return np.dtype([("shared", parts), ("addresses", np.uintp, (n_addresses,))])


def user_data_of(shared: Mapping[str, np.ndarray], addresses: Sequence[int]) -> np.ndarray:
    """Return the user data, shape ``()``."""
    record = np.zeros((), record_type(shared, len(addresses)))
    record["addresses"] = addresses
    for key, x in shared.items():
        for part, value in (("data", x.ctypes.data), ("size", x.size), ("shape", x.shape)):
            record["shared"][part][key] = value
    return record


def offset(record: np.dtype, *path: str) -> int:
    """Return the offset of a field in bytes; ``path`` names the field from the outermost record inwards."""
    at = 0
    for name in path:
        fields: Any = record.fields
        record, start = fields[name][:2]
        at += start
    return at


def read_only_copy(value: Any) -> np.ndarray:
    """Return a read-only copy of shared data in C order, to which user data may point."""
    array = np.array(value, order="C", copy=True)
    array.flags.writeable = False
    return array
