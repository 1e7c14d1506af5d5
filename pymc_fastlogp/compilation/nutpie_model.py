"""Model object of nutpie's Python modules: nutpie's compiled model with direct callbacks and a Python function of logp."""

from dataclasses import dataclass, fields
from typing import Any

from nutpie.compile_pymc import CompiledPyMCModel

from pymc_fastlogp.callbacks.linear_map import transform_callbacks, transform_initial_point
from pymc_fastlogp.compilation.coords import transformed_coords
from pymc_fastlogp.compilation.loading import (
    CompiledRecord,
    Evaluable,
    initial_point_of,
    load_callbacks,
    user_data_for,
)
from pymc_fastlogp.model_cache.record import EXPAND, LOGP
from pymc_fastlogp.reparametrization.linear_map import LinearMap


@dataclass(frozen=True)
class CompiledModel(CompiledPyMCModel, Evaluable):
    """Model for ``nutpie.sample`` whose log density can be called from Python."""

    frozen_data: frozenset[str] = frozenset()

    def with_data(self, **updates: Any) -> "CompiledModel":
        """Return the model with other shared data, as nutpie does; frozen data can't be replaced.

        Raises
        ------
        ValueError
            If data were frozen when the model was compiled.
        """
        for name in updates:
            if name in self.frozen_data:
                raise ValueError(
                    f"{name} was frozen when the model was compiled: set it in the model and compile anew,"
                    " or compile with freeze_model=False."
                )
        return super().with_data(**updates)


@dataclass(frozen=True)
class TransformedModel(CompiledModel):
    """Model in linearly transformed coordinates, see :mod:`pymc_fastlogp.callbacks.linear_map`.

    Attributes
    ----------
    original : CompiledModel
        The model in its own coordinates.
    linear_map : LinearMap
        From the coordinates of this model to the coordinates of ``original``. The user data hold the addresses of its arrays.
    """

    original: Any = None
    linear_map: Any = None

    def with_data(self, **updates: Any) -> "TransformedModel":
        """Return the model with other shared data, as nutpie does."""
        new = transformed(self.original.with_data(**updates), self.linear_map)
        adapted = self._transform_adapt_args
        return new.with_transform_adapt(**adapted) if adapted else new


def nutpie_model_of(compiled: CompiledRecord, n_helpers: int = 0) -> CompiledModel:
    """Return the model object that ``nutpie.sample`` takes; ``n_helpers`` threads help all chains."""
    record, build = compiled.record, compiled.build
    callbacks = load_callbacks(record, compiled.numba_calls, n_helpers)
    names, _, shapes = record.shape_info
    model = CompiledModel(
        compiled_logp_func=callbacks[LOGP],
        compiled_expand_func=callbacks[EXPAND],
        shared_data=compiled.shared,
        shared_var_keys=compiled.shared_keys,
        user_data=user_data_for(callbacks, compiled.shared),
        initial_point_func=initial_point_of(record, compiled.source),
        dims=record.dims,
        n_expanded=record.n_expanded,
        shape_info=record.shape_info,
        reparameterized_names=record.reparameterized,
        logp_func=build.functions.logp if build else None,
        expand_func=build.functions.expand if build else None,
        _n_dim=record.n_dim,
        _shapes={name: tuple(shape) for name, shape in zip(names, shapes, strict=True)},
        _coords=record.coords,
        frozen_data=compiled.frozen_data,
    )
    return model if record.linear_map is None else transformed(model, record.linear_map)


def transformed(model: CompiledModel, linear_map: LinearMap) -> TransformedModel:
    """Return a model in other coordinates.

    Parameters
    ----------
    model : CompiledModel
        The model, whose point fits on the stack of a thread.
    linear_map : LinearMap
        From the new coordinates to the coordinates of ``model``.
    """
    new = transform_callbacks(
        model.compiled_logp_func.address,
        model.compiled_expand_func.address,
        model.user_data.ctypes.data,
        linear_map,
        n_dim=model.n_dim,
    )
    same = {x.name: getattr(model, x.name) for x in fields(CompiledModel)}
    other: dict[str, Any] = {
        "compiled_logp_func": new.logp,
        "compiled_expand_func": new.expand,
        "initial_point_func": transform_initial_point(model.initial_point_func, new.linear_map),
        "user_data": new.user_data,
        "_coords": transformed_coords(model.coords or {}, linear_map),
    }
    return TransformedModel(**same | other, original=model, linear_map=new.linear_map)
