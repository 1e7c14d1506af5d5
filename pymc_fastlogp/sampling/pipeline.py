"""A model from disk, or else compiled and kept there."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pymc_fastlogp.callbacks.user_data import read_only_copy
from pymc_fastlogp.compilation import initial_point
from pymc_fastlogp.compilation.coords import coords_at
from pymc_fastlogp.compilation.model_source import Start
from pymc_fastlogp.compilation.shapes import ShapeGraph, Shapes, shape_graph
from pymc_fastlogp.model_cache import store
from pymc_fastlogp.model_cache.key import Form, NotKeyedError, form_of, key_of
from pymc_fastlogp.model_cache.record import Record

if TYPE_CHECKING:
    import pymc as pm

    from pymc_fastlogp._upstream.nutpie_library import SampledModel
    from pymc_fastlogp.compilation.build import Build
    from pymc_fastlogp.compilation.evaluated_model import EvaluatedModel
    from pymc_fastlogp.compilation.nutpie_model import CompiledModel

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
    """

    record: Record
    frozen_data: frozenset[str]
    start: Start
    build: "Build | None" = None

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
        Whether data are constants.
    """
    if not freeze:
        return _with_shared_data(model, options)
    frozen_data = frozenset(x.name for x in model.data_vars)
    key = _keyed(key_of, model, options)
    record = _read(key)
    start = Start(model, options, freeze=True)
    if record is None or record.initial_point is None:
        start.hold_data()
    if record is not None:
        return Found(record, frozen_data, start)
    build = _built(start, options, key if _is_still(key, model, options) else None)
    return Found(build.record, frozen_data, start, build)


def _with_shared_data(model: "pm.Model", options: dict[str, Any]) -> Found:
    """Return a model with the data that it has now; found on disk for other data, too, if these lead to the same shapes."""
    form = _keyed(form_of, model, options)
    shapes = form and _shapes(model, form)
    if form is None or shapes is None:
        start = Start(model, options, freeze=False)
        build = _built(start, options, None)
        return Found(build.record, frozenset(), start, build)
    key = form.key_at(shapes.stored)
    record = _read(key)
    start = Start(model, options, freeze=False, data=form.data, shapes=shapes.stored)
    if record is not None:
        read = record.keys_of(form.data)
        shared = {name: read_only_copy(x.get_value(borrow=True)) for x, name in read.items()}
        coords = coords_at(model, shapes.dims, record.coords)
        return Found(replace(record, shared=shared, coords=coords), frozenset(), start)
    build = _built(start, options, key)
    return Found(build.record, frozenset(), start, build)


def _shapes(model: "pm.Model", form: Form) -> Shapes | None:
    """Return the shapes of a model with the data that it has now, None where that is left to nutpie."""
    try:
        graph = _shape_graph(model, form)
        return None if graph is None else graph.at(form.data)
    except Exception as error:  # data that do not fit each other, or a prior without a support point: upstream says so
        logger.info("the model is not kept on disk, since its shapes are not known: %s", error)
        return None


def _shape_graph(model: "pm.Model", form: Form) -> ShapeGraph | None:
    name = form.key + store.SHAPES
    graph = store.read(name, ShapeGraph)
    if graph is None:
        graph = shape_graph(model, form.data)
        if graph is None:
            logger.info("the model is not kept on disk, since its shapes depend on more than data")
        else:
            store.write(name, graph)
    return graph


def _built(start: Start, options: Mapping[str, Any], key: str | None) -> "Build":
    """Compile a model, and keep it under its key; what compiles is not imported for one that is found on disk."""
    from pymc_fastlogp.compilation.build import Build

    build = Build(start, options["var_names"])
    if key is not None and _can_be_kept(build) and build.is_whole:
        store.write(key, build.record)
    return build


def reparametrized(model: "pm.Model", options: dict[str, Any]) -> Found:
    """Return a model with sites for its effects, in coordinates in which other parameters are not correlated.

    Both are kept with the model, so that one which is found on disk needs no pilot.
    """
    frozen_data = frozenset(x.name for x in model.data_vars)
    keyed = options | {"reparametrize": True}
    key = _keyed(key_of, model, keyed)
    record = _read(key)
    if record is not None:
        return Found(record, frozen_data, Start(model, options, freeze=True))
    from pymc_fastlogp.compilation.evaluated_model import evaluated
    from pymc_fastlogp.reparametrization.coordinates import find_linear_map
    from pymc_fastlogp.reparametrization.selection import select_parametrization
    from pymc_fastlogp.reparametrization.sites import site_arrays

    builds: list[tuple[Start, Build]] = []

    def compiled_once(model: "pm.Model", *, freeze: bool = False) -> "EvaluatedModel":
        start = Start(model, options, freeze=freeze)
        builds.append((start, _built(start, options, None)))
        return evaluated(builds[-1][1], start)

    found = select_parametrization(model, compiled_once, {*(options["initial_points"] or ())})
    if found is None:
        straight = compiled_once(model, freeze=True)
        linear_map = find_linear_map(builds[-1][0].model, straight, straight.initial_point_func(0))
    else:
        straight = found.compiled
        linear_map = find_linear_map(found.model, straight, found.point, found.effects)
    start, build = builds[-1]
    # Sites are shared data, and part of the record; the initial point is that of the model with them.
    record = replace(
        build.record,
        shared=dict(straight.shared_data),
        initial_point=initial_point.dumped(start),
        linear_map=linear_map,
    )
    sites = {} if found is None else found.sites
    of_sites = {name for block, site in sites.items() for name in site_arrays(block, site)}
    # Data that are shared outside of the model would have no names in another process.
    is_whole = record.initial_point is not None and all(x.name in of_sites for x in build.keys)
    if key is not None and _can_be_kept(build) and is_whole and _is_still(key, model, keyed):
        store.write(key, record)
    return Found(record, frozen_data, start, build)


def for_nutpie(found: Found) -> "CompiledModel":
    """Return what nutpie samples from."""
    from pymc_fastlogp.compilation.nutpie_model import assembled, mapped

    straight = assembled(*found)
    linear_map = found.record.linear_map
    return straight if linear_map is None else mapped(straight, linear_map)


def for_library(found: Found) -> "SampledModel | None":
    """Return what nutpie's library samples from, None if Numba has a part in it."""
    if found.build is not None and found.build.by_numba:
        return None
    from pymc_fastlogp.compilation.loading import sampled_model

    return sampled_model(replace(found.record, shared=found.shared), found.start)


def _can_be_kept(build: "Build") -> bool:
    if not build.is_direct:
        logger.info("the model is not kept on disk, because it calls code that Numba compiled")
    return build.is_direct


def _read(key: str | None) -> Record | None:
    record = None if key is None else store.read(key, Record)
    if record is not None:
        logger.info("the model is found on disk")
    return record


def _is_still(key: str | None, model: "pm.Model", options: dict[str, Any]) -> bool:
    """Return whether a model has the key that it had: another thread may have exchanged data before they were frozen."""
    return key is not None and key == _keyed(key_of, model, options)


def _keyed[T](
    make: Callable[["pm.Model", dict[str, Any]], T], model: "pm.Model", options: dict[str, Any]
) -> T | None:
    """Return the key of a model in the cache, None if it has none or there is no cache."""
    if store.files() is None:
        return None
    try:
        return make(model, options)
    except NotKeyedError as reason:
        logger.info("the model is not kept on disk, because of %s", reason)
        return None
