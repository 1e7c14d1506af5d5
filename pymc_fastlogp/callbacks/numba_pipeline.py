"""Direct callbacks for nutpie's own compilation, as a ``pipeline_class`` of ``numba.cfunc``.

nutpie passes unknown arguments to ``numba.cfunc``, which takes a ``pipeline_class``. The class from this module inspects the decorated
function. For nutpie's two callbacks LLVM compiles the function of :mod:`pymc_fastlogp.callbacks.emit`, which calls a kernel, or the graph that Numba
compiles. Any other function is compiled by Numba.
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
from pymc_fastlogp.callbacks.graph_call import (
    POINT,
    GraphCall,
    KernelCall,
    NotCoveredError,
    NumbaCall,
    checked,
    output_shapes,
)
from pymc_fastlogp.callbacks.native import SYMBOL
from pymc_fastlogp.kernel.native.kernels import Kernel
from pymc_fastlogp.kernel.native.loaded_code import LoadedCode, engine
from pymc_fastlogp.kernel.native.target import target_machine, verified
from pymc_fastlogp.registration import is_enabled

logger = logging.getLogger("pymc_fastlogp")


@cache
def pipeline_class() -> type:
    """Return the compiler for ``numba.cfunc``."""
    return pipeline(library_of)


class CallbackLibrary:
    """Code library of a callback, as ``numba.cfunc`` stores it.

    Parameters
    ----------
    raw : RawCallback
        The callback that nutpie decorates.
    call : GraphCall
        The call that the callback makes.
    """

    def __init__(self, raw: RawCallback, call: GraphCall):
        # Owns the memory at the addresses that the code contains.
        self._call = call
        module = _callback_module(raw, call, FixedAddresses(_addresses(call)))
        self._text = str(module)
        self._code = LoadedCode(engine(target_machine().emit_object(verified(module))), SYMBOL)

    def get_pointer_to_function(self, name: str) -> int:
        """Return the address of the callback."""
        return self._code.address

    def get_llvm_str(self) -> str:
        """Return the LLVM assembly of the callback."""
        return self._text


def library_of(function: FunctionType) -> CallbackLibrary | None:
    """Return the code library of a callback of nutpie, None for a function that Numba has to compile."""
    raw = raw_callback_of(function) if is_enabled() else None
    if raw is None:
        return None
    return CallbackLibrary(raw, _call(raw))


def _call(raw: RawCallback) -> GraphCall:
    try:
        return traced_call(traced(raw.jitted))
    except (NotCoveredError, NotTracedError) as reason:
        logger.info("Numba compiles the graph of %s, which needs %s", raw.name, reason)
    return NumbaCall(raw.jitted, [POINT], output_shapes(raw.n_dim, raw.n_expanded))


def traced_call(outputs: tuple[Any, ...]) -> KernelCall:
    """Return the kernel call of traced outputs, as :func:`~pymc_fastlogp.callbacks.graph_call.kernel_call_of` does for a graph.

    Raises
    ------
    NotCoveredError
        If the graph needs other Ops.
    """
    if not all(isinstance(x, Traced) for x in outputs):
        raise NotCoveredError("a constant as an output")
    if all(x.call is None for x in outputs):
        return KernelCall(None, (), ())
    calls = {x.call for x in outputs}
    call = calls.pop()
    if calls or call is None or not isinstance(call.function.source, Kernel):
        raise NotCoveredError("several kernels")
    kernel = call.function.source
    arguments = tuple(map(_argument, call.arguments))
    return checked(KernelCall(kernel, arguments, tuple(x.number for x in outputs)))


def _argument(x: Any) -> int | np.ndarray:
    """Return an argument of a kernel call: the position of an input, or a constant."""
    if isinstance(x, np.ndarray):
        return np.asarray(x, order="C")
    if x.call is None:
        return x.number
    if isinstance(x.call.function.source, tuple):
        return np.asarray(x.call.function.source[x.number].array, order="C")
    raise NotCoveredError("several kernels")


def _addresses(call: GraphCall) -> list[int]:
    if isinstance(call, NumbaCall):
        return [call.address]
    if call.kernel is None:
        return []
    code = call.kernel.load("C" * len(call.kernel.program.inputs)).value
    assert code is not None
    return [code, *(x.ctypes.data for x in call.constants)]


def _callback_module(raw: RawCallback, call: GraphCall, addresses: FixedAddresses) -> ir.Module:
    if raw.n_expanded is None:
        return logp_module(call, addresses, raw.n_dim)
    return expand_module(call, addresses, raw.n_dim, raw.n_expanded)
