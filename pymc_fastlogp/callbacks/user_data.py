"""The memory that nutpie hands to each call of a callback.

nutpie defines its first part, a record ``shared`` with address, size and shape of each shared variable, which its
``with_data`` writes anew. What follows is ours: the address of the machine code and of the constants of each callback.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def record_type(shared: Mapping[str, np.ndarray], n_addresses: int) -> np.dtype:
    """Return the type of the record.

    Parameters
    ----------
    shared : mapping of str to ndarray
        Shared data by the keys that nutpie knows them by.
    n_addresses : int
        How many addresses follow.
    """
    parts = [
        ("data", [(key, np.uintp) for key in shared]),
        ("size", [(key, np.uintp) for key in shared]),
        ("shape", [(key, np.uint, (x.ndim,)) for key, x in shared.items()]),
    ]
    return np.dtype([("shared", parts), ("addresses", np.uintp, (n_addresses,))])


def filled(shared: Mapping[str, np.ndarray], addresses: Sequence[int]) -> np.ndarray:
    """Return the record, shape ``()``."""
    record = np.zeros((), record_type(shared, len(addresses)))
    record["addresses"] = addresses
    for key, x in shared.items():
        for part, value in (("data", x.ctypes.data), ("size", x.size), ("shape", x.shape)):
            record["shared"][part][key] = value
    return record


def offset(record: np.dtype, *path: str) -> int:
    """Return where a field begins, in bytes; ``path`` names it from the outermost record inwards."""
    at = 0
    for name in path:
        fields: Any = record.fields
        record, start = fields[name][:2]
        at += start
    return at


def read_only_copy(value: Any) -> np.ndarray:
    """Return shared data as the record refers to them, in C order; nobody can change them."""
    array = np.array(value, order="C", copy=True)
    array.flags.writeable = False
    return array
