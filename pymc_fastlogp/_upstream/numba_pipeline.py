"""Private Numba APIs: the compiler result that ``numba.cfunc`` expects, and PyTensor's functions for a graph.

``pipeline_class`` is the argument of Numba's decorators for a compiler of one's own. That of :func:`pipeline` asks first whether there is
code for a function already.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType, SimpleNamespace
from typing import Any, Protocol

import numpy as np
from numba.core.compiler import CR_FIELDS, Compiler, CompileResult

from pymc_fastlogp._upstream.numba import EmittedFunction

# PyTensor's wrapper of a function, which keeps it in this global variable.
WRAPPED = "jitable_func"
# PyTensor's function of ``DeepCopyOp``.
COPY = ("pytensor.link.numba.dispatch.compile_ops", "numba_funcify_DeepCopyOp.<locals>.deepcopy")


class Library(Protocol):
    """Code of a C function, as ``numba.cfunc`` asks for it."""

    def get_pointer_to_function(self, name: str) -> int:
        """Return the address, valid as long as the library."""

    def get_llvm_str(self) -> str:
        """Return its text."""


def pipeline(library_of: Callable[[FunctionType], Library | None]) -> type[Compiler]:
    """Return a compiler for ``numba.cfunc`` that takes the library of a function where there is one.

    Parameters
    ----------
    library_of : callable
        From the function that is decorated to its library, None for Numba to compile it.
    """

    class Pipeline(Compiler):
        """Numba's compiler, for functions that have no code yet."""

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
    """A value in a graph: an input, or a result of a call.

    Attributes
    ----------
    number : int
        Which input, or which result.
    call : Call, optional
        The call; None for an input.
    """

    number: int
    call: "Call | None" = None


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a function that was emitted."""

    function: EmittedFunction
    arguments: tuple[Any, ...]


class NotTracedError(Exception):
    """A function that does more than to call emitted functions; the text names what."""


def traced(jitted: Any) -> tuple[Any, ...]:
    """Return the outputs of a graph that PyTensor has made a Numba function of, without running it.

    The function is a sequence of calls, one for each node. It is called with stand-ins for its inputs and for the functions of the nodes,
    so that nothing has to be read from its text.

    Parameters
    ----------
    jitted : Dispatcher
        What PyTensor's Numba linker made.

    Returns
    -------
    tuple
        For each output a :class:`Traced`, or a constant.

    Raises
    ------
    NotTracedError
        If a node is neither an emitted function nor a copy.
    """
    function = _unwrapped(jitted)
    if not isinstance(function, FunctionType) or function.__closure__:
        raise NotTracedError("a function that is not PyTensor's")
    code = function.__code__
    stand_ins = {name: _stand_in(function.__globals__.get(name)) for name in code.co_names}
    inputs = [Traced(i) for i in range(code.co_argcount)]
    return tuple(FunctionType(code, stand_ins)(*inputs))


def _unwrapped(function: Any) -> Any:
    """Return what a function stands for, behind Numba's dispatchers and PyTensor's wrappers."""
    while True:
        function = getattr(function, "py_func", function)
        if not isinstance(function, FunctionType) or function.__code__.co_names != (WRAPPED,):
            return function
        function = function.__globals__[WRAPPED]


def _stand_in(value: Any) -> Any:
    """Return what stands for a global variable of a graph's function."""
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
