"""A record in memory: machine code that can be called, what it takes, and where chains start."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pymc_fastlogp._upstream.nutpie import flat_initial_point
from pymc_fastlogp._upstream.nutpie_library import SampledModel
from pymc_fastlogp.callbacks import user_data
from pymc_fastlogp.callbacks.linear_map import moved, moved_start
from pymc_fastlogp.compilation import initial_point
from pymc_fastlogp.compilation.coords import coords_of_moved
from pymc_fastlogp.compilation.model_source import Start
from pymc_fastlogp.model_cache.record import EXPAND, LOGP, Called, DirectCallback, Record
from pymc_fastlogp.reparametrization.linear_map import LinearMap


def loaded(
    record: Record, shared: Mapping[str, np.ndarray], called: Mapping[str, Called]
) -> tuple[dict[str, DirectCallback], np.ndarray]:
    """Return the callbacks of a record by name, and what they take as their last argument; some call what is not in the record."""
    callbacks = {name: DirectCallback(x, called.get(name)) for name, x in record.sides.items()}
    addresses = [x for each in callbacks.values() for x in each.addresses]
    return callbacks, user_data.filled(shared, addresses)


def initial_point_of(record: Record, start: Start) -> Any:
    """Return the function from a seed to an unconstrained point."""
    if record.initial_point is not None:
        return initial_point.load(record.initial_point, record.value_shapes, start.data or ())
    return flat_initial_point(start, record.shape_info[0][: record.n_values], record.value_shapes)


def sampled_model(record: Record, start: Start) -> SampledModel:
    """Return what nutpie's library samples from.

    Parameters
    ----------
    record : Record
        A model with both callbacks.
    start : Start
        Where chains start, if the record does not say it.
    """
    callbacks, data = loaded(record, record.shared, {})
    model = SampledModel(
        n_dim=record.n_dim,
        n_expanded=record.n_expanded,
        logp=callbacks[LOGP].address,
        expand=callbacks[EXPAND].address,
        user_data=data.ctypes.data,
        alive=(callbacks, data, record.shared),
        initial_point=initial_point_of(record, start),
        shape_info=record.shape_info,
        dims=record.dims,
        coords=record.coords,
    )
    return model if record.linear_map is None else _moved(model, record.linear_map)


def _moved(model: SampledModel, linear_map: LinearMap) -> SampledModel:
    new = moved(model.logp, model.expand, model.user_data, linear_map, n_dim=model.n_dim)
    return model._replace(
        logp=new.logp.address,
        expand=new.expand.address,
        user_data=new.user_data.ctypes.data,
        alive=(new, model.alive),
        initial_point=moved_start(model.initial_point, new.linear_map),
        coords=coords_of_moved(model.coords, linear_map),
    )
