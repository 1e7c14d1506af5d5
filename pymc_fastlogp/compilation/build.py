"""A model compiled: PyTensor rewrites its graphs as nutpie has it, LLVM makes the callbacks."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from llvmlite import ir
from pytensor.compile.sharedvalue import SharedVariable

from pymc_fastlogp._upstream.nutpie import Functions
from pymc_fastlogp.callbacks.emit import Layout, expand_module, logp_module
from pymc_fastlogp.callbacks.kernel_call import NotCoveredError, Plan, plan_of
from pymc_fastlogp.callbacks.numba_graph import NumbaGraph, inputs_of, shapes_of
from pymc_fastlogp.callbacks.object_code import object_code_of
from pymc_fastlogp.callbacks.user_data import read_only_copy, record_type
from pymc_fastlogp.compilation import initial_point
from pymc_fastlogp.compilation.coords import dims_and_coords
from pymc_fastlogp.compilation.graphs import functions_of
from pymc_fastlogp.compilation.interpreter import numbered
from pymc_fastlogp.compilation.model_source import Start
from pymc_fastlogp.kernel.native import machine_code
from pymc_fastlogp.model_cache.record import EXPAND, LOGP, Record, Side

logger = logging.getLogger("pymc_fastlogp")


class Build:
    """A model that was compiled in this process.

    Parameters
    ----------
    start : Start
        The model, and where its chains start.
    var_names : sequence of str, optional
        What is stored.

    Attributes
    ----------
    functions : Functions
        What nutpie made of the model with PyTensor.
    shared : dict of str to ndarray
        Shared data by key.
    keys : dict of SharedVariable to str
        The keys.
    record : Record
        The model without what is shared.
    by_numba : dict of str to NumbaGraph
        What callbacks call that is not in the record.
    is_direct : bool
        Whether the record, with what is shared, is enough in another process.
    is_whole : bool
        Whether, besides, the record says which of the model's data each shared variable is, none twice.
    """

    def __init__(self, start: Start, var_names: Sequence[str] | None):
        self.functions = functions_of(start, var_names)
        variables = [x for side in self._functions().values() for x in side.get_shared()]
        self.keys: dict[SharedVariable, str] = {}
        for x in variables:
            self.keys.setdefault(x, f"shared {len(self.keys)}")
        self.shared = {key: read_only_copy(x.get_value()) for x, key in self.keys.items()}
        plans = {name: self._plan(name) for name in self._functions()}
        self.by_numba = {name: x for name, x in plans.items() if isinstance(x, NumbaGraph)}
        self.record = self._record(start, plans)
        programs = [plan.kernel.program for plan in plans.values() if plan.kernel]
        calls_upstream = any(any(True for _ in machine_code.externals_of(x)) for x in programs)
        self.is_direct = not self.by_numba and not calls_upstream
        self.is_whole = self.is_direct and len({*self.record.data.values()}) == len(self.shared)

    def keys_of(self, name: str) -> list[str]:
        """Return the keys of the shared variables of a callback, in the order of its arguments."""
        return [self.keys[x] for x in self._functions()[name].get_shared()]

    def _functions(self) -> Mapping[str, Any]:
        return {LOGP: self.functions.logp, EXPAND: self.functions.expand}

    def _plan(self, name: str) -> Plan | NumbaGraph:
        function = self._functions()[name]
        try:
            return plan_of(function.maker.fgraph)
        except NotCoveredError as reason:
            logger.info("Numba compiles the graph of %s, which needs %s", name, reason)
        n_dim, n_expanded = self.functions.n_dim, self.functions.n_expanded
        shapes = shapes_of(n_dim, None if name == LOGP else n_expanded)
        return NumbaGraph(function.vm.jit_fn, inputs_of(function.maker.fgraph.inputs), shapes)

    def _record(self, start: Start, plans: Mapping[str, Plan | NumbaGraph]) -> Record:
        functions = self.functions
        n_values = len(start.model.free_RVs)
        dims, coords = dims_and_coords(start.model, functions)
        return Record(
            functions.n_dim,
            functions.n_expanded,
            n_values,
            functions.shape_info,
            functions.reparameterized,
            dims,
            coords,
            self._sides(plans),
            initial_point.dumped(start),
            data=self._numbers(start.data or ()),
        )

    def _numbers(self, data: Sequence[SharedVariable]) -> dict[str, int]:
        """Return by key which of the data are read."""
        numbers = numbered(data)
        found = {key: numbers.get(id(x.container)) for x, key in self.keys.items()}
        return {key: number for key, number in found.items() if number is not None}

    def _sides(self, plans: Mapping[str, Plan | NumbaGraph]) -> dict[str, Side]:
        type_ = record_type(self.shared, sum(1 + len(plan.constants) for plan in plans.values()))
        first, sides = 0, {}
        for name, plan in plans.items():
            layout = Layout(type_, self.keys_of(name), first)
            first += 1 + len(plan.constants)
            sides[name] = _side(plan, _module(self.functions, name, plan, layout))
        return sides


def _module(functions: Functions, name: str, plan: Plan | NumbaGraph, layout: Layout) -> ir.Module:
    if name == LOGP:
        return logp_module(plan, layout, functions.n_dim)
    return expand_module(plan, layout, functions.n_dim, functions.n_expanded)


def _side(plan: Plan | NumbaGraph, module: ir.Module) -> Side:
    """Return the object code of a callback and its kernel."""
    if plan.kernel is None:
        return Side("", b"", object_code_of(module), (), ())
    program, name = plan.kernel.program, plan.kernel.name
    # Such a record stays in this process.
    machine_code.bind_scalars(program)
    return Side(
        name,
        machine_code.object_code(program, name),
        object_code_of(module),
        tuple(sorted(machine_code.library_functions(program))),
        tuple(plan.constants),
    )
