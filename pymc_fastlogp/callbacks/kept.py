"""A model from disk, or else compiled and kept there."""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pymc_fastlogp.callbacks import initial_point, store
from pymc_fastlogp.callbacks.model_key import NotKeyedError, key_of
from pymc_fastlogp.callbacks.record import Record
from pymc_fastlogp.callbacks.start import Start

if TYPE_CHECKING:
    import pymc as pm

    from pymc_fastlogp._upstream.nutpie_library import SampledModel
    from pymc_fastlogp.callbacks.build import Build
    from pymc_fastlogp.callbacks.compiled import CompiledModel

logger = logging.getLogger("pymc_fastlogp")


class Found(NamedTuple):
    """A model that was found on disk or compiled.

    Attributes
    ----------
    record : Record
        The model.
    frozen_data : frozenset of str
        Names of the data that are constants of it.
    start : Start
        Where chains start, if the record does not say it.
    build : Build, optional
        What the record was made by, unless it comes from disk.
    straight : CompiledModel, optional
        The model for nutpie without the linear map of the record, if it was needed on the way.
    """

    record: Record
    frozen_data: frozenset[str]
    start: Start
    build: "Build | None" = None
    straight: "CompiledModel | None" = None

    @property
    def shared(self) -> dict[str, np.ndarray]:
        """Shared data by key."""
        return self.build.shared if self.build and not self.record.shared else self.record.shared


def as_written(model: "pm.Model", options: dict[str, Any], *, freeze: bool) -> Found:
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
        return Found(record, frozen_data, start)
    from pymc_fastlogp.callbacks.build import Build

    build = Build(start, options["var_names"])
    if key is not None and not build.shared and _can_be_kept(build):
        store.write(key, build.record)
    return Found(build.record, frozen_data, start, build)


def parametrised(model: "pm.Model", options: dict[str, Any]) -> Found:
    """Return a model with sites for its effects, in coordinates in which other parameters are not correlated.

    Both are kept with the model, so that one which is found on disk needs no pilot.
    """
    frozen_data = frozenset(x.name for x in model.data_vars)
    key = _key(model, options | {"parametrise": True})
    record = _read(key)
    if record is not None:
        return Found(record, frozen_data, Start(model, options, freeze=True))
    from pymc_fastlogp.callbacks.build import Build
    from pymc_fastlogp.callbacks.compiled import assembled
    from pymc_fastlogp.parametrisation.coordinates import coordinates_of
    from pymc_fastlogp.parametrisation.pilot import pilot_of

    builds: list[tuple[Start, Build]] = []

    def compiled_once(model: "pm.Model", *, freeze: bool = False) -> "CompiledModel":
        start = Start(model, options, freeze=freeze)
        builds.append((start, Build(start, options["var_names"])))
        return assembled(builds[-1][1].record, frozen_data, start, builds[-1][1])

    pilot = pilot_of(model, compiled_once, {*(options["initial_points"] or ())})
    if pilot is None:
        straight = compiled_once(model, freeze=True)
        linear_map = coordinates_of(builds[-1][0].model, straight, straight.initial_point_func(0))
    else:
        straight = pilot.compiled
        linear_map = coordinates_of(pilot.model, straight, pilot.point, pilot.effects)
    start, build = builds[-1]
    # Sites are shared data, and part of the record; the initial point is that of the model with them.
    record = replace(
        build.record,
        shared=dict(straight.shared_data),
        initial_point=initial_point.dumped(start),
        linear_map=linear_map,
    )
    if key is not None and _can_be_kept(build) and record.initial_point is not None:
        store.write(key, record)
    return Found(record, frozen_data, start, build, straight)


def for_nutpie(found: Found) -> "CompiledModel":
    """Return what nutpie samples from."""
    from pymc_fastlogp.callbacks.compiled import assembled, mapped

    straight = found.straight or assembled(*found[:4])
    linear_map = found.record.linear_map
    return straight if linear_map is None else mapped(straight, linear_map)


def for_library(found: Found) -> "SampledModel | None":
    """Return what nutpie's library samples from, None if Numba has a part in it."""
    if found.build is not None and found.build.by_numba:
        return None
    from pymc_fastlogp.callbacks.loaded import sampled_model

    return sampled_model(replace(found.record, shared=found.shared), found.start)


def _can_be_kept(build: "Build") -> bool:
    if not build.is_direct:
        logger.info("the model is not kept on disk, because it calls code that Numba compiled")
    return build.is_direct


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
