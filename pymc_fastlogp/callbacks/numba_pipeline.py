"""nutpie's own callbacks, compiled without Numba where nutpie itself compiles the model.

nutpie hands arguments that it does not know to ``numba.cfunc``, and that takes a ``pipeline_class``. Ours looks at the function that it is to
compile: where it is one of nutpie's two callbacks, LLVM makes it in some milliseconds, as :mod:`pymc_fastlogp.callbacks.emit` has it. What it calls is a
kernel, or the function of a graph that Numba compiles. Everything else is left to Numba's own compiler.
"""

import logging
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np
from llvmlite import ir

from pymc_fastlogp._upstream.numba_pipeline import NotTracedError, Traced, pipeline, traced
from pymc_fastlogp._upstream.nutpie import RawCallback, raw_callback_of
from pymc_fastlogp.callbacks.emit import FixedAddresses, expand_module, logp_module
from pymc_fastlogp.callbacks.kernel_call import NotCoveredError, Plan, checked
from pymc_fastlogp.callbacks.numba_graph import POINT, NumbaGraph, shapes_of
from pymc_fastlogp.kernel.native.code import Code, engine
from pymc_fastlogp.kernel.native.kernels import Kernel
from pymc_fastlogp.kernel.native.target import optimized, target_machine
from pymc_fastlogp.model_cache.record import SYMBOL
from pymc_fastlogp.registration import is_enabled

logger = logging.getLogger("pymc_fastlogp")


@cache
def pipeline_class() -> type:
    """Return the compiler for ``numba.cfunc``."""
    return pipeline(library_of)


class CallbackLibrary:
    """The code of a callback, as ``numba.cfunc`` keeps it.

    Parameters
    ----------
    raw : RawCallback
        What nutpie wants to have compiled.
    plan : Plan or NumbaGraph
        What it calls.
    """

    def __init__(self, raw: RawCallback, plan: Plan | NumbaGraph):
        # The code has the addresses of what is in it.
        self._plan = plan
        module = _module(raw, plan, FixedAddresses(_addresses(plan)))
        machine = target_machine()
        self._text = str(module)
        self._code = Code(engine(machine.emit_object(optimized(module, machine))), SYMBOL)

    def get_pointer_to_function(self, name: str) -> int:
        """Return the address of the callback."""
        return self._code.address

    def get_llvm_str(self) -> str:
        """Return its text."""
        return self._text


def library_of(function: FunctionType) -> CallbackLibrary | None:
    """Return the code of a callback of nutpie, None for Numba to compile it."""
    raw = raw_callback_of(function) if is_enabled() else None
    if raw is None:
        return None
    return CallbackLibrary(raw, _plan(raw))


def _plan(raw: RawCallback) -> Plan | NumbaGraph:
    try:
        return plan_of_traced(traced(raw.jitted))
    except (NotCoveredError, NotTracedError) as reason:
        logger.info("Numba compiles the graph of %s, which needs %s", raw.name, reason)
    return NumbaGraph(raw.jitted, [POINT], shapes_of(raw.n_dim, raw.n_expanded))


def plan_of_traced(outputs: tuple[Any, ...]) -> Plan:
    """Return the call that the outputs of a graph are, as :func:`pymc_fastlogp.callbacks.kernel_call.plan_of` does of the graph itself.

    Raises
    ------
    NotCoveredError
        If there is more to it.
    """
    if not all(isinstance(x, Traced) for x in outputs):
        raise NotCoveredError("a constant as an output")
    if all(x.call is None for x in outputs):
        return Plan(None, (), ())
    calls = {x.call for x in outputs}
    call = calls.pop()
    if calls or call is None or not isinstance(call.function.source, Kernel):
        raise NotCoveredError("several kernels")
    kernel = call.function.source
    plan = Plan(kernel, tuple(map(_argument, call.arguments)), tuple(x.number for x in outputs))
    return checked(plan)


def _argument(x: Any) -> int | np.ndarray:
    """Return an argument of a kernel as a plan has it."""
    if isinstance(x, np.ndarray):
        return np.asarray(x, order="C")
    if x.call is None:
        return x.number
    if isinstance(x.call.function.source, tuple):
        return np.asarray(x.call.function.source[x.number].array, order="C")
    raise NotCoveredError("several kernels")


def _addresses(plan: Plan | NumbaGraph) -> list[int]:
    if isinstance(plan, NumbaGraph):
        return [plan.address]
    if plan.kernel is None:
        return []
    code = plan.kernel.load("C" * len(plan.kernel.program.inputs)).value
    assert code is not None
    return [code, *(x.ctypes.data for x in plan.constants)]


def _module(raw: RawCallback, plan: Plan | NumbaGraph, addresses: FixedAddresses) -> ir.Module:
    if raw.n_expanded is None:
        return logp_module(plan, addresses, raw.n_dim)
    return expand_module(plan, addresses, raw.n_dim, raw.n_expanded)
