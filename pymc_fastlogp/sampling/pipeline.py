"""Stages of a compilation, from a request to a compiled record.

.. code-block:: text

    stage            module
    request          sampling.request
    key              model_cache.key; compilation.shapes, if data are shared
    lookup           model_cache.store
    freeze           compilation.model_source, models.freeze
    reparametrize    reparametrization.selection, reparametrization.linear_map_search
    graphs, rewrite  compilation.graphs
    callbacks        callbacks.graph_call, callbacks.emit, callbacks.native
    record           compilation.build; compilation.coords, compilation.interpreter for its parts
"""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pymc_fastlogp.callbacks.native import read_only_copy
from pymc_fastlogp.compilation import interpreter
from pymc_fastlogp.compilation.coords import coords_at
from pymc_fastlogp.compilation.loading import CompiledRecord, EvaluatedModel, evaluated_model
from pymc_fastlogp.compilation.model_source import ModelSource, Shapes
from pymc_fastlogp.compilation.shapes import ShapeGraph, shape_graph
from pymc_fastlogp.model_cache import store
from pymc_fastlogp.model_cache.key import Form, NotKeyedError, form_of, key_of
from pymc_fastlogp.model_cache.record import Record

if TYPE_CHECKING:
    import pymc as pm

    from pymc_fastlogp.compilation.build import Build
    from pymc_fastlogp.sampling.request import Request

logger = logging.getLogger("pymc_fastlogp")


class CacheKey(NamedTuple):
    """Key of a model in the cache.

    Attributes
    ----------
    digest : str, optional
        Hexadecimal digits; None if the model is not cached.
    form : Form, optional
        The model without the values of its shared data.
    shapes : Shapes, optional
        Shapes with the current values of the shared data.
    """

    digest: str | None
    form: Form | None = None
    shapes: Shapes | None = None


def compile_record(request: "Request", key: CacheKey | None = None) -> CompiledRecord:
    """Load the record of a model from the cache, or compile the model and cache the record.

    Parameters
    ----------
    request : Request
        Arguments of the compilation.
    key : CacheKey, optional
        The key of the model, if known.
    """
    key = key or _key(request)
    record = store.read_record(key.digest)
    if record is None and request.reparametrize:
        return _reparametrized(request, key)
    source = source_of(request, key, record)
    if record is not None:
        record = with_current_data(record, request, key)
        return CompiledRecord(record, request.frozen_data, source)
    if request.is_frozen and not _is_current(key, request):
        key = CacheKey(None)
    build = _build(request, source)
    if _is_portable(key, build) and build.identifies_data:
        store.write(key.digest, build.record)
    return CompiledRecord(build.record, request.frozen_data, source, build)


def _key(request: "Request") -> CacheKey:
    """Return the key of a model. With shared data the key holds shapes in place of values."""
    if store.files() is None:
        return CacheKey(None)
    try:
        if request.is_frozen:
            return CacheKey(key_of(request.model, request.key_options))
        form = form_of(request.model, request.key_options)
    except NotKeyedError as reason:
        logger.info("the model is not cached on disk, because of %s", reason)
        return CacheKey(None)
    shapes = _shapes(request.model, form)
    if shapes is None:
        return CacheKey(None)
    return CacheKey(form.key_at(shapes.compiled), form, shapes)


def _is_current(key: CacheKey, request: "Request") -> bool:
    """Return whether a model still has its key: another thread may have set data before the model was frozen."""
    return key.digest is not None and key.digest == _key(request).digest


def _shapes(model: "pm.Model", form: Form) -> Shapes | None:
    """Return the shapes of a model with the current data, None if nutpie has to determine them."""
    try:
        graph = cached_shape_graph(model, form)
        return None if graph is None else graph.at(form.data)
    except Exception as error:  # upstream raises the error again and explains it
        logger.info("the model is not cached on disk, since its shapes are not known: %s", error)
        return None


def cached_shape_graph(model: "pm.Model", form: Form) -> ShapeGraph | None:
    """Return the graph of the shapes of a model from the cache or make it; None if shapes depend on more than data."""
    name = form.key + store.SHAPES
    graph = store.read(name, ShapeGraph)
    if graph is None:
        graph = shape_graph(model, form.data)
        if graph is None:
            logger.info(
                "the model is not cached on disk, since its shapes depend on more than data"
            )
        else:
            store.write(name, graph)
    return graph


def source_of(request: "Request", key: CacheKey, record: Record | None) -> ModelSource:
    """Return the source of a model, frozen now if its data will be read later."""
    source = ModelSource(
        request.model,
        request.options,
        freeze=request.is_frozen,
        data=key.form.data if key.form else None,
        shapes=key.shapes,
    )
    if request.is_frozen and (record is None or record.initial_point is None):
        source.freeze()
    return source


def with_current_data(
    record: Record, request: "Request", key: CacheKey, derived: interpreter.Graph | None = None
) -> Record:
    """Return a record from the cache with the current values of its shared data; ``derived`` is the graph of derived data, if loaded."""
    if key.form is None or key.shapes is None:
        return record
    variables = record.keys_of(key.form.data)
    shared = {name: x.get_value(borrow=True) for x, name in variables.items()}
    if record.derived is not None:
        graph = derived or interpreter.load(record.derived.content, key.form.data)
        shared |= dict(zip(record.derived.keys, graph(), strict=True))
    return replace(
        record,
        shared={name: read_only_copy(shared[name]) for name in record.keys},
        coords=coords_at(request.model, key.shapes.dims, record.coords),
    )


def _build(request: "Request", source: ModelSource) -> "Build":
    """Compile a model. The imports are local, so a cache hit does not import the compiler."""
    from pymc_fastlogp.compilation.build import Build
    from pymc_fastlogp.compilation.graphs import functions_of

    functions = functions_of(source, request.options["var_names"])
    return Build(source, functions)


def _reparametrized(request: "Request", key: CacheKey) -> CompiledRecord:
    """Compile a model with sites for its effects, in coordinates in which the other parameters are uncorrelated.

    The record holds sites and linear map, so a cache hit needs no pilot.
    """
    from pymc_fastlogp.reparametrization.linear_map_search import find_linear_map
    from pymc_fastlogp.reparametrization.selection import select_parametrization
    from pymc_fastlogp.reparametrization.sites import site_arrays

    builds: list[tuple[ModelSource, Build]] = []

    def compile_pilot(model: "pm.Model", *, freeze: bool = False) -> EvaluatedModel:
        source = ModelSource(model, request.options, freeze=freeze)
        builds.append((source, _build(request, source)))
        return evaluated_model(builds[-1][1], source)

    selected = select_parametrization(
        request.model, compile_pilot, {*(request.options["initial_points"] or ())}
    )
    if selected is None:
        pilot = compile_pilot(request.model, freeze=True)
        linear_map = find_linear_map(builds[-1][0].model, pilot, pilot.initial_point_func(0))
    else:
        pilot = selected.compiled
        linear_map = find_linear_map(selected.model, pilot, selected.point, selected.effects)
    source, build = builds[-1]
    # Sites are shared data and part of the record, and the initial point reads them.
    record = replace(
        build.record,
        shared=dict(pilot.shared_data),
        initial_point=build.serialized_initial_point(source),
        linear_map=linear_map,
    )
    sites = {} if selected is None else selected.sites
    of_sites = {name for block, site in sites.items() for name in site_arrays(block, site)}
    # Other shared data come from outside of the model and have no names in another process.
    is_complete = record.initial_point is not None and all(x.name in of_sites for x in build.keys)
    if _is_portable(key, build) and is_complete and _is_current(key, request):
        store.write(key.digest, record)
    return CompiledRecord(record, request.frozen_data, source, build)


def _is_portable(key: CacheKey, build: "Build") -> bool:
    """Return whether another process can use the record; log if the record of a model with a key needs code that Numba compiled."""
    if key.digest is not None and not build.is_portable:
        logger.info("the model is not cached on disk, because it calls code that Numba compiled")
    return build.is_portable
