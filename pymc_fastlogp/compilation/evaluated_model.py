"""A compiled model as Python calls it: logp and gradient at a point, without nutpie's modules."""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable

from pymc_fastlogp.callbacks import user_data
from pymc_fastlogp.callbacks.status import BAD_GRADIENT, BAD_LOGP
from pymc_fastlogp.compilation.loading import initial_point_of, loaded
from pymc_fastlogp.model_cache.record import LOGP, Called, DirectCallback, Record

if TYPE_CHECKING:
    from pymc_fastlogp.compilation.build import Build
    from pymc_fastlogp.compilation.model_source import Start

LOGP_TYPE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64, *[ctypes.c_void_p] * 4)
HAS_VALUES = {0, BAD_GRADIENT, BAD_LOGP}


class Evaluable:
    """Protocol of a model with a callback for logp.

    Attributes
    ----------
    n_dim : int
        Length of the unconstrained point.
    compiled_logp_func : Called
        The callback.
    user_data : ndarray
        What it takes as its last argument.
    """

    if TYPE_CHECKING:
        n_dim: int
        compiled_logp_func: Called
        user_data: NDArray[Any]

    def logp_dlogp(self, x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return logp and its gradient at an unconstrained point.

        Parameters
        ----------
        x : ndarray, shape (n_dim,)
            The point, as float64. ``initial_point_func(seed)`` gives one.

        Returns
        -------
        logp : float
            Perhaps infinite or nan.
        gradient : ndarray, shape (n_dim,)
            A new array.

        Raises
        ------
        ValueError
            If the point has another shape, or a check of the model fails there, as for an index out of range.
        """
        x = np.asarray(x, dtype=np.float64, order="C")
        if x.shape != (self.n_dim,):
            raise ValueError(f"the point has shape {x.shape}: give one of shape ({self.n_dim},).")
        gradient, logp = np.empty(self.n_dim), ctypes.c_double()
        status = self._logp_function(
            self.n_dim,
            x.ctypes.data,
            gradient.ctypes.data,
            ctypes.addressof(logp),
            self.user_data.ctypes.data,
        )
        if status not in HAS_VALUES:
            raise ValueError(f"the model cannot be evaluated at this point (status {status}).")
        return logp.value, gradient

    @cached_property
    def _logp_function(self) -> Any:
        return LOGP_TYPE(self.compiled_logp_func.address)


@dataclass(frozen=True)
class EvaluatedModel(Evaluable):
    """A model as a pilot asks for it.

    Attributes
    ----------
    record : Record
        The model.
    callbacks : dict of str to DirectCallback
        Its machine code, loaded.
    shared_data : mapping of str to ndarray
        Shared data by key.
    shared_var_keys : mapping of SharedVariable to str
        The keys.
    initial_point_func : callable
        From a seed to an unconstrained point.
    """

    record: Record
    callbacks: Mapping[str, DirectCallback]
    shared_data: Mapping[str, np.ndarray]
    shared_var_keys: Mapping[SharedVariable, str]
    initial_point_func: Callable[[Any], NDArray[np.float64]]

    @property
    def n_dim(self) -> int:  # type: ignore[override]
        """Length of the unconstrained point."""
        return self.record.n_dim

    @property
    def shape_info(self) -> tuple[list, list, list]:
        """Names, slices and shapes of the stored variables, value variables first."""
        return self.record.shape_info

    @property
    def compiled_logp_func(self) -> DirectCallback:  # type: ignore[override]
        """The callback for logp."""
        return self.callbacks[LOGP]

    @cached_property
    def user_data(self) -> NDArray[Any]:  # type: ignore[override]
        """Memory that callbacks take as their last argument."""
        addresses = [x for each in self.callbacks.values() for x in each.addresses]
        return user_data.filled(self.shared_data, addresses)

    def with_data(self, **updates: NDArray[Any]) -> "EvaluatedModel":
        """Return the model with other shared data, by name, of the same types."""
        keys = {x.name: key for x, key in self.shared_var_keys.items()}
        new = {keys[name]: user_data.read_only_copy(x) for name, x in updates.items()}
        return replace(self, shared_data={**self.shared_data, **new})


def evaluated(build: "Build", start: "Start") -> EvaluatedModel:
    """Return a model that was compiled in this process."""
    callbacks, _ = loaded(build.record, build.shared, build.by_numba)
    return EvaluatedModel(
        build.record, callbacks, build.shared, build.keys, initial_point_of(build.record, start)
    )
