"""Compile the rewritten graphs of a model: LLVM compiles the callbacks, and a record holds the result."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from llvmlite import ir
from pytensor.compile.sharedvalue import SharedVariable

from pymc_fastlogp._upstream.nutpie import Functions
from pymc_fastlogp.callbacks.emit import Layout, expand_module, logp_module
from pymc_fastlogp.callbacks.graph_call import (
    GraphCall,
    KernelCall,
    NotCoveredError,
    NumbaCall,
    input_types,
    kernel_call_of,
    output_shapes,
)
from pymc_fastlogp.callbacks.native import read_only_copy, record_type
from pymc_fastlogp.compilation import interpreter
from pymc_fastlogp.compilation.coords import dims_and_coords
from pymc_fastlogp.compilation.graphs import initial_value_graph
from pymc_fastlogp.compilation.model_source import ModelSource
from pymc_fastlogp.kernel.native import machine_code
from pymc_fastlogp.kernel.native.object_files import object_code_of
from pymc_fastlogp.model_cache.record import EXPAND, LOGP, CallbackCode, Derived, Record

logger = logging.getLogger("pymc_fastlogp")


class Build:
    """Model compiled in this process.

    Parameters
    ----------
    source : ModelSource
        The model.
    functions : Functions
        Its rewritten functions.

    Attributes
    ----------
    functions : Functions
        The rewritten functions.
    shared : dict of str to ndarray
        Shared data by key.
    keys : dict of SharedVariable to str
        Keys of the shared variables.
    numba_calls : dict of str to NumbaCall
        Functions that callbacks call and that the record does not contain.
    record : Record
        The compiled model without shared data.
    is_portable : bool
        Whether the record and the shared data suffice in another process: nothing calls code that Numba compiled.
    identifies_data : bool
        Whether the record identifies each shared variable as one of the model's data, each a different one, or computes it from these.
    """

    def __init__(self, source: ModelSource, functions: Functions):
        self.functions = functions
        self._by_name: Mapping[str, Any] = {
            LOGP: functions.logp,
            EXPAND: functions.expand,
        }
        variables = [x for each in self._by_name.values() for x in each.get_shared()]
        self.keys: dict[SharedVariable, str] = {}
        for x in variables:
            self.keys.setdefault(x, f"shared {len(self.keys)}")
        self.shared = {key: read_only_copy(x.get_value()) for x, key in self.keys.items()}
        calls = {name: self._call(name) for name in self._by_name}
        self.numba_calls = {name: x for name, x in calls.items() if isinstance(x, NumbaCall)}
        self._initial_values = initial_value_graph(source)
        self.record = self._record(source, calls)
        programs = [call.kernel.program for call in calls.values() if call.kernel]
        calls_upstream = any(any(True for _ in machine_code.externals_of(x)) for x in programs)
        self.is_portable = not self.numba_calls and not calls_upstream
        of_data, derived = self.record.data.values(), self.record.derived
        n_known = len({*of_data}) + (len(derived.keys) if derived else 0)
        self.identifies_data = n_known == len(self.shared)

    def keys_of(self, name: str) -> list[str]:
        """Return the keys of the shared variables of a callback, in the order of its arguments."""
        return [self.keys[x] for x in self._by_name[name].get_shared()]

    def serialized_initial_point(self, source: ModelSource) -> bytes | None:
        """Return the graph of the initial values with the current values of its shared variables, None if left to PyMC."""
        return interpreter.dump(self._initial_values, source.data)

    def _call(self, name: str) -> GraphCall:
        function = self._by_name[name]
        try:
            return kernel_call_of(function.maker.fgraph)
        except NotCoveredError as reason:
            logger.info("Numba compiles the graph of %s, which needs %s", name, reason)
        n_dim, n_expanded = self.functions.n_dim, self.functions.n_expanded
        shapes = output_shapes(n_dim, None if name == LOGP else n_expanded)
        return NumbaCall(function.vm.jit_fn, input_types(function.maker.fgraph.inputs), shapes)

    def _record(self, source: ModelSource, calls: Mapping[str, GraphCall]) -> Record:
        functions = self.functions
        dims, coords = dims_and_coords(source.model, functions)
        return Record(
            functions.n_dim,
            functions.n_expanded,
            len(source.model.free_RVs),
            functions.shape_info,
            functions.reparameterized,
            dims,
            coords,
            self._callbacks(calls),
            self.serialized_initial_point(source),
            data=self._data_positions(source.data or ()),
            derived=self._derived(source),
            keys=tuple(self.shared),
        )

    def _data_positions(self, data: Sequence[SharedVariable]) -> dict[str, int]:
        """Return the positions in ``data`` of the shared variables, by key."""
        positions = interpreter.container_positions(data)
        by_key = {key: positions.get(id(x.container)) for x, key in self.keys.items()}
        return {key: position for key, position in by_key.items() if position is not None}

    def _derived(self, source: ModelSource) -> Derived | None:
        derived = self.functions.derived
        content = interpreter.dump(derived.graph, source.data) if derived else None
        if content is None:
            return None
        return Derived(tuple(self.keys[x] for x in derived.variables), content)

    def _callbacks(self, calls: Mapping[str, GraphCall]) -> dict[str, CallbackCode]:
        type_ = record_type(self.shared, sum(1 + len(call.constants) for call in calls.values()))
        first, callbacks = 0, {}
        for name, call in calls.items():
            layout = Layout(type_, self.keys_of(name), first)
            first += 1 + len(call.constants)
            callbacks[name] = _code(call, _callback_module(self.functions, name, call, layout))
        return callbacks


def _callback_module(functions: Functions, name: str, call: GraphCall, layout: Layout) -> ir.Module:
    """Return the LLVM module of the callback with a name, which calls a graph."""
    if name == LOGP:
        return logp_module(call, layout, functions.n_dim)
    return expand_module(call, layout, functions.n_dim, functions.n_expanded)


def _code(call: GraphCall, module: ir.Module) -> CallbackCode:
    """Return the object code of a callback and of its kernel."""
    if not isinstance(call, KernelCall) or call.kernel is None:
        return CallbackCode("", b"", object_code_of(module, with_passes=False), (), ())
    program, name = call.kernel.program, call.kernel.name
    # Bound addresses are valid in this process only, see `is_portable`.
    machine_code.bind_scalars(program)
    return CallbackCode(
        name,
        machine_code.object_code(program, name),
        object_code_of(module, with_passes=False),
        tuple(sorted(machine_code.library_functions(program))),
        tuple(call.constants),
    )
