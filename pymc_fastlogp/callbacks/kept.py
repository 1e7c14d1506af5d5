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


def parametrised(model: "pm.Model", options: dict[str, Any]) -> CompiledModel | None:
    """Return a model with sites for its effects, None if it has none.

    Sites are kept with the model, so that one which is found on disk needs no pilot.
    """
    frozen_data = frozenset(x.name for x in model.data_vars)
    key = _key(model, options | {"parametrise": True})
    record = _read(key)
    if record is not None:
        return assembled(record, frozen_data, Start(model, options, freeze=True))
    from pymc_fastlogp.callbacks.build import Build
    from pymc_fastlogp.parametrisation.pilot import pilot_of

    builds: list[tuple[Start, Build]] = []

    def compiled_once(sited: "pm.Model") -> CompiledModel:
        start = Start(sited, options, freeze=False)
        builds.append((start, Build(start, options["var_names"])))
        return assembled(builds[-1][1].record, frozen_data, start, builds[-1][1])

    pilot = pilot_of(model, compiled_once, {*(options["initial_points"] or ())})
    if pilot is None:
        return None
    _keep_sited(key, *builds[-1], pilot.compiled.shared_data)
    return pilot.compiled


def _keep_sited(key: str | None, start: Start, build: "Build", shared: Mapping[str, Any]) -> None:
    """Keep a model with its sites, if its initial point needs no compilation: that of PyMC is of the model without them."""
    if key is None or not build.is_direct:
        return
    begin = initial_point.dumped(start)
    if begin is not None:
        store.write(key, replace(build.record, shared=dict(shared), initial_point=begin))


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
