"""A model from disk, or else compiled and kept there."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pymc_fastlogp.callbacks import initial_point, store
from pymc_fastlogp.callbacks.compiled import CompiledModel, assembled
from pymc_fastlogp.callbacks.model_key import NotKeyedError, key_of
from pymc_fastlogp.callbacks.record import Record
from pymc_fastlogp.callbacks.start import Start
from pymc_fastlogp.parametrisation.linear_map import LinearMap

if TYPE_CHECKING:
    import pymc as pm

    from pymc_fastlogp.callbacks.build import Build

logger = logging.getLogger("pymc_fastlogp")


def compiled(model: "pm.Model", options: dict[str, Any], *, freeze: bool) -> CompiledModel:
    """Return a model as it is written.

    Parameters
    ----------
    model : pymc.Model
        As the user made it.
    options : dict
        The arguments of ``nutpie.compile_pymc_model`` about starts and stored variables, with variables by name.
    freeze : bool
        Whether data are constants; others are not kept on disk.
    """
    frozen_data = frozenset(x.name for x in model.data_vars if freeze)
    key = _key(model, options) if freeze else None
    record = _read(key)
    start = Start(model, options, freeze=freeze)
    if record is not None:
        return assembled(record, frozen_data, start)
    from pymc_fastlogp.callbacks.build import Build

    build = Build(start, options["var_names"])
    if key is not None and build.is_direct and not build.shared:
        store.write(key, build.record)
    return assembled(build.record, frozen_data, start, build)


def parametrised(model: "pm.Model", options: dict[str, Any]) -> CompiledModel:
    """Return a model with sites for its effects, in coordinates in which other parameters are not correlated.

    Both are kept with the model, so that one which is found on disk needs no pilot.
    """
    frozen_data = frozenset(x.name for x in model.data_vars)
    key = _key(model, options | {"parametrise": True})
    record = _read(key)
    if record is not None:
        start = Start(model, options, freeze=True)
        return in_coordinates(assembled(record, frozen_data, start), record.linear_map)
    from pymc_fastlogp.callbacks.build import Build
    from pymc_fastlogp.parametrisation.coordinates import coordinates_of
    from pymc_fastlogp.parametrisation.pilot import pilot_of

    builds: list[tuple[Start, Build]] = []

    def compiled_once(model: "pm.Model", *, freeze: bool = False) -> CompiledModel:
        start = Start(model, options, freeze=freeze)
        builds.append((start, Build(start, options["var_names"])))
        return assembled(builds[-1][1].record, frozen_data, start, builds[-1][1])

    pilot = pilot_of(model, compiled_once, {*(options["initial_points"] or ())})
    if pilot is None:
        straight = compiled_once(model, freeze=True)
        found = coordinates_of(builds[-1][0].model, straight, straight.initial_point_func(0))
    else:
        straight = pilot.compiled
        found = coordinates_of(pilot.model, straight, pilot.point, pilot.effects)
    _keep_parametrised(key, *builds[-1], straight.shared_data, found)
    return in_coordinates(straight, found)


def in_coordinates(model: CompiledModel, linear_map: LinearMap | None) -> CompiledModel:
    """Return a model in other coordinates, if there are any."""
    if linear_map is None:
        return model
    from pymc_fastlogp.callbacks.mapped import mapped

    return mapped(model, linear_map)


def _keep_parametrised(
    key: str | None,
    start: Start,
    build: "Build",
    shared: Mapping[str, Any],
    linear_map: LinearMap | None,
) -> None:
    """Keep a model with its sites, if its initial point needs no compilation: that of PyMC is of the model without them."""
    if key is None or not build.is_direct:
        return
    begin = initial_point.dumped(start)
    if begin is not None:
        store.write(
            key,
            replace(build.record, shared=dict(shared), initial_point=begin, linear_map=linear_map),
        )


def _read(key: str | None) -> Record | None:
    record = None if key is None else store.read(key)
    if record is not None:
        logger.info("the model is found on disk")
    return record


def _key(model: "pm.Model", options: dict[str, Any]) -> str | None:
    """Return the key of a model in the cache, None if it has none or there is no cache."""
    if store.files() is None:
        return None
    try:
        return key_of(model, options)
    except NotKeyedError as reason:
        logger.info("the model is not kept on disk, because of %s", reason)
        return None
