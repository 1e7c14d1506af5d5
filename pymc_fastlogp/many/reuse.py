"""Machine code in memory for models that differ in their data alone.

A fit of a small model takes a tenth of a second. Hashing the model, reading its record from disk and loading the machine code take as long.
:class:`ReusedModel` hashes a model once, and :data:`_loaded` keeps the loaded callbacks by the key of the model with the shapes of its stored variables.

Data are set once for thousands of evaluations. For data of the usual shapes a model is compiled in another form, which reads what depends on data alone:
:mod:`pymc_fastlogp.compilation.derived_data`.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable

from pymc_fastlogp.analysis.known_data import UnusableDataError
from pymc_fastlogp.callbacks.native import DirectCallback
from pymc_fastlogp.compilation import interpreter
from pymc_fastlogp.compilation.loading import CompiledRecord, load_callbacks
from pymc_fastlogp.compilation.model_source import Shapes
from pymc_fastlogp.compilation.shapes import shape_graph
from pymc_fastlogp.model_cache import store
from pymc_fastlogp.model_cache.key import Form, NotKeyedError, form_of
from pymc_fastlogp.model_cache.record import Record
from pymc_fastlogp.models.compile_lock import compile_lock
from pymc_fastlogp.sampling.compile_model import compiled_record
from pymc_fastlogp.sampling.pipeline import (
    CacheKey,
    cached_shape_graph,
    source_of,
    with_current_data,
)

if TYPE_CHECKING:
    import pymc as pm

    from pymc_fastlogp.sampling.request import Request

logger = logging.getLogger("pymc_fastlogp")

# Models in memory. A loaded model takes up to 1 MB.
MOST_LOADED = 64


class _Loaded(NamedTuple):
    record: Record
    callbacks: Mapping[str, DirectCallback]


# The least recently used first.
_loaded: OrderedDict[str, _Loaded] = OrderedDict()
_lock = threading.Lock()


class ReusedModel:
    """Model with shared data that is compiled once for all data of equal shapes.

    Parameters
    ----------
    request : Request
        Arguments of the compilation, without freezing. Nothing but the data and coordinates of the model may change.
    data_shapes : dict of str to tuple of int, optional
        Shapes of the shared data by name. For data of these shapes, parts that depend on data alone are computed once for each data set.
    """

    def __init__(
        self, request: "Request", data_shapes: Mapping[str, tuple[int, ...]] | None = None
    ):
        self._request, self._data_shapes = request, data_shapes
        self._derived: dict[str, interpreter.Graph] = {}

    def compiled(self) -> CompiledRecord:
        """Return the model compiled for its current data."""
        try:
            return self._compiled(self._key())
        except UnusableDataError as reason:
            logger.info("the model reads all of its data: %s", reason)
        return self._compiled(self._key(derives=False))

    def _compiled(self, key: CacheKey) -> CompiledRecord:
        if key.form is None or key.shapes is None:
            return compiled_record(self._request)
        name = key.form.key_at(key.shapes.compiled)
        with _lock:
            loaded = _loaded.get(name)
            if loaded is not None:
                _loaded.move_to_end(name)
        if loaded is None:
            compiled = compiled_record(self._request, key)
            if _is_reusable(compiled):
                return self._kept(name, compiled)
            if key.shapes.data is None:
                return compiled
            # The other form may be reusable: it needs no graph that can be pickled.
            self._data_shapes = None
            return self._compiled(self._key())
        if name not in self._derived and loaded.record.derived is not None:
            content = loaded.record.derived.content
            self._derived[name] = interpreter.load(content, key.form.data)
        derived = self._derived.get(name)
        record = with_current_data(loaded.record, self._request, key, derived)
        source = source_of(self._request, key, record)
        return CompiledRecord(record, frozenset(), source, callbacks=loaded.callbacks)

    @cached_property
    def _form(self) -> tuple[Form, bool]:
        """The model without its data, and whether models on disk have its key."""
        model = self._request.model
        try:
            return form_of(model, self._request.key_options), store.files() is not None
        except NotKeyedError:
            variables = (*model.data_vars, *model.dim_lengths.values())
            data = tuple(x for x in variables if isinstance(x, SharedVariable))
            return Form(uuid4().hex, data), False

    @cached_property
    def _shapes(self) -> Callable[[], Shapes] | None:
        """The function that returns the shapes with the current data."""
        form, is_on_disk = self._form
        with compile_lock():
            if is_on_disk:
                graph = cached_shape_graph(self._request.model, form)
            else:
                graph = shape_graph(self._request.model, form.data)
        return None if graph is None else graph.function(form.data)

    def _key(self, *, derives: bool = True) -> CacheKey:
        """Return the key for the current data, without shapes if shapes depend on more than the data; with ``derives``, of the form for data of usual shapes."""
        form, is_on_disk = self._form
        if self._shapes is None:
            return CacheKey(None)
        shapes = self._shapes()
        if derives and self._data_shapes == shapes_of_data(self._request.model):
            of_data = tuple(np.shape(x.get_value(borrow=True)) for x in form.data)
            shapes = shapes._replace(data=of_data)
        return CacheKey(form.key_at(shapes.compiled) if is_on_disk else None, form, shapes)

    def _kept(self, name: str, compiled: CompiledRecord) -> CompiledRecord:
        """Keep the callbacks of a compiled model in memory, and return the model with these callbacks."""
        callbacks = load_callbacks(compiled.record, {})
        with _lock:
            _loaded[name] = _Loaded(compiled.record, callbacks)
            while len(_loaded) > MOST_LOADED:
                _loaded.popitem(last=False)
        return compiled._replace(callbacks=callbacks)


def shapes_of_data(model: "pm.Model") -> dict[str, tuple[int, ...]]:
    """Return the shapes of the shared data of a model by name."""
    shared = [x for x in model.data_vars if isinstance(x, SharedVariable)]
    return {x.name: np.shape(x.get_value(borrow=True)) for x in shared}


def _is_reusable(compiled: CompiledRecord) -> bool:
    """Return whether the record suffices for other data: Numba compiles no part, and shared data are the data of the model."""
    build = compiled.build
    return build is None or (not build.numba_calls and build.identifies_data)
