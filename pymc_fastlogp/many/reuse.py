"""Machine code in memory for models that differ in their data alone.

A fit of a small model takes a tenth of a second. Hashing the model, reading its record from disk and loading the machine code take as long.
:class:`ReusedModel` hashes a model once, and :data:`_loaded` keeps the loaded callbacks by the key of the model with the shapes of its stored variables.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from pytensor.compile.sharedvalue import SharedVariable

from pymc_fastlogp.callbacks.native import DirectCallback
from pymc_fastlogp.compilation.loading import CompiledRecord, load_callbacks
from pymc_fastlogp.compilation.shapes import ShapeGraph, shape_graph
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
    from pymc_fastlogp.sampling.request import Request

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
    """

    def __init__(self, request: "Request"):
        self._request = request

    def compiled(self) -> CompiledRecord:
        """Return the model compiled for its current data."""
        key = self._key()
        if key.form is None or key.shapes is None:
            return compiled_record(self._request)
        name = key.form.key_at(key.shapes.stored)
        with _lock:
            loaded = _loaded.get(name)
            if loaded is not None:
                _loaded.move_to_end(name)
        if loaded is None:
            compiled = compiled_record(self._request, key)
            return self._kept(name, compiled) if _is_reusable(compiled) else compiled
        record = with_current_data(loaded.record, self._request, key)
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
    def _shapes(self) -> ShapeGraph | None:
        """The graph of the shapes of the stored variables."""
        form, is_on_disk = self._form
        with compile_lock():
            if is_on_disk:
                return cached_shape_graph(self._request.model, form)
            return shape_graph(self._request.model, form.data)

    def _key(self) -> CacheKey:
        """Return the key for the current data, without shapes if shapes depend on more than the data."""
        form, is_on_disk = self._form
        if self._shapes is None:
            return CacheKey(None)
        shapes = self._shapes.at(form.data)
        return CacheKey(form.key_at(shapes.stored) if is_on_disk else None, form, shapes)

    def _kept(self, name: str, compiled: CompiledRecord) -> CompiledRecord:
        """Keep the callbacks of a compiled model in memory, and return the model with these callbacks."""
        callbacks = load_callbacks(compiled.record, {})
        with _lock:
            _loaded[name] = _Loaded(compiled.record, callbacks)
            while len(_loaded) > MOST_LOADED:
                _loaded.popitem(last=False)
        return compiled._replace(callbacks=callbacks)


def _is_reusable(compiled: CompiledRecord) -> bool:
    """Return whether the record suffices for other data: Numba compiles no part, and shared data are the data of the model."""
    build = compiled.build
    return build is None or (not build.numba_calls and build.identifies_data)
