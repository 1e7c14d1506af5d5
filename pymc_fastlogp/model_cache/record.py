"""Record of a compiled model, which can be pickled: object code, names, shapes and data.

A process that loads a record needs PyTensor for the graph of the initial point at most.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable

from pymc_fastlogp.reparametrization.linear_map import LinearMap

# Keys of the two callbacks.
LOGP, EXPAND = "logp", "expand"


@dataclass(frozen=True)
class CallbackCode:
    """Object code of a callback and of the kernel that it calls.

    Attributes
    ----------
    kernel : str
        Name of the kernel function, empty if the callback calls no kernel.
    kernel_code, callback_code : bytes
        Object code.
    library : tuple of str
        BLAS and LAPACK functions that the kernel calls.
    constants : tuple of ndarray
        Constant arguments of the kernel, in C order.
    """

    kernel: str
    kernel_code: bytes
    callback_code: bytes
    library: tuple[str, ...]
    constants: tuple[np.ndarray, ...]


class Derived(NamedTuple):
    """Arrays that callbacks read and that are computed once for each data set.

    Attributes
    ----------
    keys : tuple of str
        Keys of the arrays.
    content : bytes
        Serialized graph of the arrays, see :mod:`pymc_fastlogp.compilation.interpreter`.
    """

    keys: tuple[str, ...]
    content: bytes


@dataclass(frozen=True)
class Record:
    """Compiled model that can be pickled.

    Attributes
    ----------
    n_dim, n_expanded : int
        Lengths of the unconstrained point and of all stored values.
    n_values : int
        Number of value variables, which are the first of the stored variables.
    shape_info : tuple of lists
        Names, slices and shapes of the stored variables.
    reparameterized : list of str
        Names of the value variables that have a transform.
    dims, coords : dict
        Dimensions of the stored variables, and coordinates.
    callbacks : dict of str to CallbackCode
        The callbacks by ``LOGP`` and ``EXPAND``.
    initial_point : bytes, optional
        Serialized graph of the initial values, see :mod:`pymc_fastlogp.compilation.interpreter`.
    shared : dict of str to ndarray
        Shared data that are part of the record, by key: the sites of reparametrized effects.
    data : dict of str to int
        Other shared data: from keys to positions in the data of :class:`~pymc_fastlogp.model_cache.key.Form`.
    derived : Derived, optional
        Other shared data, which are computed from the data.
    keys : tuple of str
        Keys of all shared data, in the order of the user data of the callbacks.
    linear_map : LinearMap, optional
        From the coordinates of the sampler to the coordinates of the callbacks.
    """

    n_dim: int
    n_expanded: int
    n_values: int
    shape_info: tuple[list, list, list]
    reparameterized: list[str]
    dims: dict[str, Any]
    coords: dict[str, Any]
    callbacks: dict[str, CallbackCode]
    initial_point: bytes | None = None
    shared: dict[str, np.ndarray] = field(default_factory=dict)
    data: dict[str, int] = field(default_factory=dict)
    derived: Derived | None = None
    keys: tuple[str, ...] = ()
    linear_map: LinearMap | None = None

    def keys_of(self, data: Sequence[SharedVariable]) -> dict[SharedVariable, str]:
        """Return the keys of those data of the model that callbacks read."""
        return {data[i]: key for key, i in self.data.items()}

    @property
    def value_shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the value variables."""
        return [tuple(shape) for shape in self.shape_info[2][: self.n_values]]
