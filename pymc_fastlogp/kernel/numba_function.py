"""``EmittedFunction``: a function that Numba calls, with instructions of our own, and that is freed like any object.

``numba.extending.intrinsic`` also emits instructions, but Numba keeps each intrinsic until the process ends, and so all that
it refers to. Here one lowering is registered for the type of all functions, and the type knows its function only
as long as that lives, as the type of an ``njit`` function does. Who keeps the function are the globals of the
Python functions that call it: those of a dispatcher of Numba or, in nutpie, of a callback. Nothing else can call its code.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.imputils import lower_constant
from numba.core.typing import signature
from numba.extending import lower_builtin, models, register_model, typeof_impl

Emit = Callable[[Any, ir.IRBuilder, Sequence[types.Type], Sequence[ir.Value]], ir.Value]


class EmittedFunction:
    """A function of positional arguments.

    Parameters
    ----------
    name : str
        Its name.
    returned : numba.types.Type
        The type of its result.
    emit : callable
        ``emit(context, builder, types, values)`` appends the instructions of a call and returns the result, a
        new reference. What it refers to lives as long as the function.
    """

    def __init__(self, name: str, returned: types.Type, emit: Emit):
        self.__name__ = name
        self.returned = returned
        self.emit = emit


class EmittedFunctionType(types.WeakType, types.Callable, types.Dummy):
    """The type of one function, as Numba sees it."""

    def __init__(self, function: EmittedFunction):
        self._store_object(function)
        super().__init__(f"{function.__name__} at {id(function)}")

    def get_call_type(self, context: Any, args: Sequence[types.Type], kws: dict[str, Any]) -> Any:
        """Return the signature of a call; the function itself is the first argument of the lowering."""
        return signature(self._get_object().returned, *args, recvr=self)

    def get_call_signatures(self) -> tuple[list[Any], bool]:
        """Return no signatures: any types are taken."""
        return [], True

    def get_impl_key(self, sig: Any) -> type:
        """Return what the lowering is registered for."""
        return EmittedFunctionType


register_model(EmittedFunctionType)(models.OpaqueModel)


@typeof_impl.register(EmittedFunction)
def _typeof(function: EmittedFunction, context: Any) -> EmittedFunctionType:
    return EmittedFunctionType(function)


@lower_constant(EmittedFunctionType)
def _lower_function(context: Any, builder: ir.IRBuilder, type_: types.Type, value: Any) -> ir.Value:
    return context.get_dummy_value()


@lower_builtin(EmittedFunctionType, types.VarArg(types.Any))
def _lower_call(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[Any]) -> ir.Value:
    function, *arg_types = sig.args
    return function._get_object().emit(context, builder, arg_types, args[1:])
