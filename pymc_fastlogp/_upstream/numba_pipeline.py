"""Private Numba APIs: the compiler result that ``numba.cfunc`` expects, and PyTensor's functions for a graph.

``pipeline_class`` is the argument of Numba's decorators for a custom compiler. The class from :func:`pipeline` first asks for existing code of a
function.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType, SimpleNamespace
from typing import Any, Protocol

import numpy as np
from numba.core.compiler import CR_FIELDS, Compiler, CompileResult

from pymc_fastlogp._upstream.numba import EmittedFunction

# Global variable in which PyTensor's wrapper of a function holds the function.
WRAPPED = "jitable_func"
# PyTensor's function of ``DeepCopyOp``.
COPY = ("pytensor.link.numba.dispatch.compile_ops", "numba_funcify_DeepCopyOp.<locals>.deepcopy")


class Library(Protocol):
    """Protocol of the code library that ``numba.cfunc`` uses."""

    def get_pointer_to_function(self, name: str) -> int:
        """Return the address, valid during the lifetime of the library."""

    def get_llvm_str(self) -> str:
        """Return the LLVM assembly."""


def pipeline(library_of: Callable[[FunctionType], Library | None]) -> type[Compiler]:
    """Return a compiler for ``numba.cfunc`` that uses the existing library of a function.

    Parameters
    ----------
    library_of : callable
        From the decorated function to its library, None for a function that Numba compiles.
    """

    class Pipeline(Compiler):
        """Numba's compiler, for functions without a library."""

        def compile_extra(self, func: FunctionType) -> CompileResult:
            library = library_of(func)
            if library is None:
                return super().compile_extra(func)
            fields = dict.fromkeys(CR_FIELDS) | {
                "library": library,
                "fndesc": SimpleNamespace(llvm_cfunc_wrapper_name=func.__name__),
            }
            return CompileResult(**fields)

    return Pipeline


@dataclass(frozen=True, eq=False)
class Traced:
    """Value in a graph: an input, or a result of a call.

    Attributes
    ----------
    number : int
        Position of the input or of the result.
    call : Call, optional
        The call of a result; None for an input.
    """

    number: int
    call: "Call | None" = None


@dataclass(frozen=True, eq=False)
class Call:
    """Call of an emitted function."""

    function: EmittedFunction
    arguments: tuple[Any, ...]


class NotTracedError(Exception):
    """A function does not only call emitted functions; the text names the other callee."""


def traced(jitted: Any) -> tuple[Any, ...]:
    """Trace the Numba function that PyTensor made of a graph, and return the outputs.

    The function is a sequence of calls, one per node. Tracing calls the function with placeholders for its inputs and for the functions of the nodes,
    so its source text need not be parsed.

    Parameters
    ----------
    jitted : Dispatcher
        The function, from PyTensor's Numba linker.

    Returns
    -------
    tuple
        A :class:`Traced` or a constant for each output.

    Raises
    ------
    NotTracedError
        If a node is neither an emitted function nor a copy.
    """
    function = _unwrapped(jitted)
    if not isinstance(function, FunctionType) or function.__closure__:
        raise NotTracedError("a function that is not PyTensor's")
    code = function.__code__
    placeholders = {name: _placeholder(function.__globals__.get(name)) for name in code.co_names}
    inputs = [Traced(i) for i in range(code.co_argcount)]
    return tuple(FunctionType(code, placeholders)(*inputs))


def _unwrapped(function: Any) -> Any:
    """Return the function behind Numba's dispatchers and PyTensor's wrappers."""
    while True:
        function = getattr(function, "py_func", function)
        if not isinstance(function, FunctionType) or function.__code__.co_names != (WRAPPED,):
            return function
        function = function.__globals__[WRAPPED]


def _placeholder(value: Any) -> Any:
    """Return the placeholder of a global variable of a graph's function."""
    if isinstance(value, np.ndarray):
        return value
    function = _unwrapped(value)
    if isinstance(function, EmittedFunction):
        return lambda *arguments: _results(function, arguments)
    if (getattr(function, "__module__", ""), getattr(function, "__qualname__", "")) == COPY:
        return lambda x: x
    name = getattr(function, "__name__", type(function).__name__)

    def refuse(*arguments: Any) -> None:
        raise NotTracedError(name)

    return refuse


def _results(function: EmittedFunction, arguments: Sequence[Any]) -> Any:
    call = Call(function, tuple(arguments))
    n_results = len(function.returned) if hasattr(function.returned, "types") else 1
    results = [Traced(i, call) for i in range(n_results)]
    return results if n_results > 1 else results[0]
