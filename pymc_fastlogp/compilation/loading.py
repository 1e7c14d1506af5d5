"""Load a compiled model into memory: callbacks, initial point, and the model objects of nutpie's library and of pilots.

:mod:`pymc_fastlogp.compilation.nutpie_model` makes the model object of nutpie's Python modules.
"""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable

from pymc_fastlogp._upstream.nutpie import flat_initial_point
from pymc_fastlogp._upstream.nutpie_library import SampledModel
from pymc_fastlogp.callbacks.linear_map import transform_callbacks, transform_initial_point
from pymc_fastlogp.callbacks.native import (
    BAD_GRADIENT,
    BAD_LOGP,
    Called,
    DirectCallback,
    read_only_copy,
    user_data_of,
)
from pymc_fastlogp.compilation.coords import transformed_coords
from pymc_fastlogp.compilation.model_source import InitialPoint, ModelSource
from pymc_fastlogp.model_cache.record import EXPAND, LOGP, Record

if TYPE_CHECKING:
    from pymc_fastlogp.compilation.build import Build

LOGP_TYPE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64, *[ctypes.c_void_p] * 4)
# Status codes with which a callback has written logp and gradient.
HAS_VALUES = {0, BAD_GRADIENT, BAD_LOGP}


class CompiledRecord(NamedTuple):
    """Result of a compilation or of a cache lookup.

    Attributes
    ----------
    record : Record
        The compiled model.
    frozen_data : frozenset of str
        Names of the data that are constants of the record.
    source : ModelSource
        Source of the initial points, if the record has no initial point.
    build : Build, optional
        The compilation, None after a cache hit.
    callbacks : mapping of str to DirectCallback, optional
        The callbacks by name, if they are in memory.
    """

    record: Record
    frozen_data: frozenset[str]
    source: ModelSource
    build: "Build | None" = None
    callbacks: "Mapping[str, DirectCallback] | None" = None

    @property
    def shared(self) -> dict[str, np.ndarray]:
        """Shared data by key."""
        return self.build.shared if self.build and not self.record.shared else self.record.shared

    @property
    def numba_calls(self) -> Mapping[str, Called]:
        """Functions of graphs that Numba compiles, by callback."""
        return self.build.numba_calls if self.build else {}

    @property
    def shared_keys(self) -> Mapping[SharedVariable, str]:
        """Keys of the shared variables."""
        return self.build.keys if self.build else self.record.keys_of(self.source.data or ())


def load_callbacks(
    record: Record, numba_calls: Mapping[str, Called], n_helpers: int = 0
) -> dict[str, DirectCallback]:
    """Return the callbacks of a record by name; ``n_helpers`` threads help the callback of logp."""
    return {
        name: DirectCallback(x, numba_calls.get(name), n_helpers if name == LOGP else 0)
        for name, x in record.callbacks.items()
    }


def user_data_for(
    callbacks: Mapping[str, DirectCallback], shared: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Return the user data of callbacks that read shared data."""
    addresses = [x for each in callbacks.values() for x in each.addresses]
    return user_data_of(shared, addresses)


def initial_point_of(record: Record, source: ModelSource) -> Any:
    """Return the function from a seed to an unconstrained point."""
    if record.initial_point is not None:
        return InitialPoint(record.initial_point, record.value_shapes, source.data or ())
    return flat_initial_point(source, record.shape_info[0][: record.n_values], record.value_shapes)


def sampled_model(compiled: CompiledRecord, n_helpers: int = 0) -> SampledModel | None:
    """Return the model object of nutpie's library, None if Numba compiles a part of the model; ``n_helpers`` threads help all chains."""
    if compiled.numba_calls:
        return None
    record, shared = compiled.record, compiled.shared
    callbacks = compiled.callbacks or load_callbacks(record, {}, n_helpers)
    user_data = user_data_for(callbacks, shared)
    model = SampledModel(
        n_dim=record.n_dim,
        n_expanded=record.n_expanded,
        logp=callbacks[LOGP].address,
        expand=callbacks[EXPAND].address,
        user_data=user_data.ctypes.data,
        alive=(callbacks, user_data, shared),
        initial_point=initial_point_of(record, compiled.source),
        shape_info=record.shape_info,
        dims=record.dims,
        coords=record.coords,
    )
    if record.linear_map is None:
        return model
    new = transform_callbacks(
        model.logp, model.expand, model.user_data, record.linear_map, n_dim=model.n_dim
    )
    return model._replace(
        logp=new.logp.address,
        expand=new.expand.address,
        user_data=new.user_data.ctypes.data,
        alive=(new, model.alive),
        initial_point=transform_initial_point(model.initial_point, new.linear_map),
        coords=transformed_coords(model.coords, record.linear_map),
    )


class Evaluable:
    """Mixin: logp and gradient in Python, for a model with a callback for logp.

    Attributes
    ----------
    n_dim : int
        Length of the unconstrained point.
    compiled_logp_func : Called
        The callback.
    user_data : ndarray
        The user data of the callback.
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
            The point, as float64. ``initial_point_func(seed)`` returns a point.

        Returns
        -------
        logp : float
            The log density, which may be infinite or NaN.
        gradient : ndarray, shape (n_dim,)
            A new array.

        Raises
        ------
        ValueError
            If the point has another shape, or a check of the model fails there, for example an index is out of range.
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
    """Model object of a pilot, which needs none of nutpie's modules.

    Attributes
    ----------
    record : Record
        The compiled model.
    callbacks : dict of str to DirectCallback
        The loaded callbacks.
    shared_data : mapping of str to ndarray
        Shared data by key.
    shared_var_keys : mapping of SharedVariable to str
        Keys of the shared variables.
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
        """User data of the callbacks."""
        return user_data_for(self.callbacks, self.shared_data)

    def with_data(self, **updates: NDArray[Any]) -> "EvaluatedModel":
        """Return the model with other shared data, by name, of the same types."""
        keys = {x.name: key for x, key in self.shared_var_keys.items()}
        new = {keys[name]: read_only_copy(x) for name, x in updates.items()}
        return replace(self, shared_data={**self.shared_data, **new})


def evaluated_model(build: "Build", source: ModelSource) -> EvaluatedModel:
    """Return the model object of a pilot."""
    callbacks = load_callbacks(build.record, build.numba_calls)
    return EvaluatedModel(
        build.record, callbacks, build.shared, build.keys, initial_point_of(build.record, source)
    )
