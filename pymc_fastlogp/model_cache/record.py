"""Record of a compiled model: everything that its first draw needs, without PyTensor except, perhaps, for the initial point."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable

from pymc_fastlogp.kernel.native import blas
from pymc_fastlogp.kernel.native.code import Code, engine
from pymc_fastlogp.reparametrization.linear_map import LinearMap

SYMBOL = "callback"
LOGP, EXPAND = "logp", "expand"


@dataclass(frozen=True)
class Side:
    """A callback and the kernel that it calls.

    Attributes
    ----------
    kernel : str
        Name of the function of the kernel, empty if there is none here.
    kernel_code, callback_code : bytes
        Object code of both.
    library : tuple of str
        Functions of BLAS and LAPACK that the kernel calls.
    constants : tuple of ndarray
        Arrays that it reads, in C order.
    """

    kernel: str
    kernel_code: bytes
    callback_code: bytes
    library: tuple[str, ...]
    constants: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Record:
    """A model.

    Attributes
    ----------
    n_dim, n_expanded : int
        Lengths of the unconstrained point and of all values that are stored.
    n_values : int
        How many of the stored variables are value variables; these come first.
    shape_info : tuple of lists
        Names, slices and shapes of the stored variables.
    reparameterized : list of str
        Names of the value variables that have a transform.
    dims, coords : dict
        Dimensions of the stored variables, and coordinates.
    sides : dict of str to Side
        The callbacks.
    initial_point : bytes, optional
        See :mod:`pymc_fastlogp.compilation.initial_point`.
    shared : dict of str to ndarray
        Shared data by key, where they are part of the model: the sites of its effects.
    data : dict of str to int
        Of other shared data, by key, which of the model's data they are, see :class:`~pymc_fastlogp.model_cache.key.Form`.
    linear_map : LinearMap, optional
        From the coordinates of the sampler to those of the callbacks.
    """

    n_dim: int
    n_expanded: int
    n_values: int
    shape_info: tuple[list, list, list]
    reparameterized: list[str]
    dims: dict[str, Any]
    coords: dict[str, Any]
    sides: dict[str, Side]
    initial_point: bytes | None = None
    shared: dict[str, np.ndarray] = field(default_factory=dict)
    data: dict[str, int] = field(default_factory=dict)
    linear_map: LinearMap | None = None

    def keys_of(self, data: Sequence[SharedVariable]) -> dict[SharedVariable, str]:
        """Return the keys of those data of the model that callbacks read."""
        return {data[i]: key for key, i in self.data.items()}

    @property
    def value_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the value variables."""
        return [tuple(shape) for shape in self.shape_info[2][: self.n_values]]


class Called(Protocol):
    """Function that is called in place of a kernel.

    Attributes
    ----------
    address : int
        Of a C function, valid as long as this object.
    """

    address: int


class DirectCallback:
    """The machine code of a side, loaded.

    Parameters
    ----------
    side : Side
        The callback.
    called : Called, optional
        What it calls, unless that is the kernel of the side or nothing.

    Attributes
    ----------
    address : int
        Of the callback, valid as long as this object.
    addresses : list of int
        What it takes from the user data.
    """

    def __init__(self, side: Side, called: Called | None = None):
        blas.bind(side.library)
        self._called = Code(engine(side.kernel_code), side.kernel) if side.kernel else called
        self._callback = Code(engine(side.callback_code), SYMBOL)
        self._constants = side.constants
        self.address = self._callback.address
        address = self._called.address if self._called else 0
        self.addresses = [address, *(x.ctypes.data for x in side.constants)]
