"""Private Numba APIs: wrap our machine code as a Numba-callable function, and access arrays, errors and memory.

``numba.extending.intrinsic`` also emits instructions, but Numba keeps each intrinsic, and all objects that the intrinsic refers to, until the process
ends. An :class:`EmittedFunction` is freed like any object. One lowering is registered for the type of all emitted functions, and the type
holds a weak reference to its function, as the type of an ``njit`` function does. Strong references are the globals of the
Python functions that call the function: the functions of a dispatcher of Numba or, in nutpie, of a callback. No other code can call its machine code.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.core.imputils import lower_constant
from numba.core.typing import signature
from numba.extending import lower_builtin, models, register_model, typeof_impl
from numba.np import arrayobj, numpy_support
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.link.numba.dispatch.basic import (
    numba_funcify,
    numba_funcify_and_cache_key,
    register_funcify_and_cache_key,
)

__all__ = [
    "EmittedFunction",
    "Frame",
    "array_type",
    "cgutils",
    "compile_numba_function_src",
    "numba_funcify",
    "numba_funcify_and_cache_key",
    "register_funcify_and_cache_key",
    "returned_type",
]

I8, I64, POINTER = ir.IntType(8), ir.IntType(64), ir.PointerType()
MEMORY = types.MemInfoPointer(types.voidptr)


def array_type(dtype: Any, ndim: int, layout: str = "C", *, readonly: bool = False) -> types.Array:
    """Return Numba's type of an array with layout C, F or A."""
    return types.Array(numpy_support.from_dtype(np.dtype(dtype)), ndim, layout, readonly=readonly)


def returned_type(results: Sequence[types.Type]) -> types.Type:
    """Return the return type of a function with these results: a tuple, or the type of the only result."""
    return types.Tuple(results) if len(results) > 1 else results[0]


class Frame(NamedTuple):
    """Numba's lowering context and the builder at the insertion point."""

    context: Any
    builder: ir.IRBuilder

    def at(self, builder: ir.IRBuilder) -> "Frame":
        """Return the frame with another builder."""
        return self._replace(builder=builder)

    def arguments_of(self, type_: types.Array, array: ir.Value) -> list[ir.Value]:
        """Return the address of the first element of an array, its lengths and its strides in bytes."""
        made = arrayobj.make_array(type_)(self.context, self.builder, array)
        sizes = (cgutils.unpack_tuple(self.builder, size) for size in (made.shape, made.strides))
        return [self.builder.bitcast(made.data, POINTER), *(n for size in sizes for n in size)]

    def array(
        self,
        type_: types.Array,
        data: ir.Value,
        shape: Sequence[ir.Value],
        strides: Sequence[ir.Value],
        memory: ir.Value | None = None,
    ) -> ir.Value:
        """Return an array of the elements at an address; the array owns ``memory``, if given."""
        made = arrayobj.make_array(type_)(self.context, self.builder)
        arrayobj.populate_array(
            made,
            data=self.builder.bitcast(data, self.pointer_to(type_)),
            shape=cgutils.pack_array(self.builder, shape, ty=I64),
            strides=cgutils.pack_array(self.builder, strides, ty=I64),
            itemsize=I64(self.itemsize(type_)),
            meminfo=memory,
        )
        return made._getvalue()

    def copy_elements(
        self,
        type_: types.Array,
        data: ir.Value,
        strides: Sequence[ir.Value],
        shape: Sequence[ir.Value],
        to: ir.Value,
        dtype: types.Type,
    ) -> None:
        """Append loops that copy elements, cast to a dtype, to an address in C order; strides are in bytes."""
        builder, element = self.builder, self.pointer_to(type_)
        with cgutils.loop_nest(builder, shape, I64) as index:
            source, position = I64(0), I64(0)
            for i, length, stride in zip(index, shape, strides, strict=True):
                source = builder.add(source, builder.mul(i, stride))
                position = builder.add(builder.mul(position, length), i)
            address = builder.gep(data, [source], source_etype=I8)
            pointer = builder.bitcast(address, element)
            value = self.context.unpack_value(builder, type_.dtype, pointer)
            number = self.context.cast(builder, value, type_.dtype, dtype)
            self.context.pack_value(builder, dtype, number, builder.gep(to, [position]))

    def pointer_to(self, type_: types.Array) -> ir.Type:
        """Return the type of the address of an element."""
        return self.context.get_data_type(type_.dtype).as_pointer()

    def itemsize(self, type_: types.Array) -> int:
        """Return the size of an element in bytes."""
        return int(arrayobj.get_itemsize(self.context, type_))

    def results(self, types_: Sequence[types.Type], values: Sequence[ir.Value]) -> ir.Value:
        """Return the return value of a function with these results, see :func:`returned_type`."""
        if len(values) == 1:
            return values[0]
        return self.context.make_tuple(self.builder, returned_type(types_), values)

    def raise_error(self, exception: type[Exception], message: str) -> None:
        """Leave the function with an exception."""
        self.context.call_conv.return_user_exc(self.builder, exception, (message,))

    def allocate(self, n_bytes: ir.Value) -> ir.Value:
        """Return new memory with one reference, null if the allocation fails."""
        align = self.context.get_preferred_array_alignment(types.float64)
        return self.context.nrt.meminfo_alloc_aligned_unchecked(self.builder, n_bytes, align)

    def data_of(self, memory: ir.Value) -> ir.Value:
        """Return the address of memory."""
        return self.builder.bitcast(self.context.nrt.meminfo_data(self.builder, memory), POINTER)

    def release(self, memory: ir.Value) -> None:
        """Release one reference to memory."""
        self.context.nrt.decref(self.builder, MEMORY, memory)

    def text(self, value: str) -> ir.Value:
        """Return the address of a C string."""
        return self.context.insert_const_string(self.builder.module, value)


Emit = Callable[[Frame, Sequence[types.Type], Sequence[ir.Value]], ir.Value]


class EmittedFunction:
    """Function of positional arguments whose instructions are emitted by a callable.

    Parameters
    ----------
    name : str
        Name of the function.
    returned : numba.types.Type
        Return type.
    emit : callable
        ``emit(frame, types, values)`` appends the instructions of a call and returns the result, a
        new reference. Objects that ``emit`` refers to live as long as the function.
    in_python : callable
        The function of arrays, for callers that run as Python because ``njit`` is replaced, as in PyTensor's own tests.
    source : object, optional
        The kernel or constants of the function, for code that analyzes a compiled graph.
    takes : sequence of numba.types.Array, optional
        Types of the arguments, with any layout; by default any types. Other arguments are a TypingError.
    """

    def __init__(
        self,
        name: str,
        returned: types.Type,
        emit: Emit,
        in_python: Callable[..., Any],
        source: Any = None,
        takes: Sequence[types.Array] | None = None,
    ):
        self.__name__ = name
        self.returned = returned
        self.emit = emit
        self.in_python = in_python
        self.source = source
        self.takes = takes

    def __call__(self, *arrays: Any) -> Any:
        """Compute the result without Numba."""
        return self.in_python(*arrays)


def _is_like(expected: types.Array, given: types.Type) -> bool:
    """Return whether a type is an array type with the same dtype and number of dimensions."""
    return (
        isinstance(given, types.Array)
        and given.ndim == expected.ndim
        and given.dtype == expected.dtype
    )


class EmittedFunctionType(types.WeakType, types.Callable, types.Dummy):
    """Numba type of one emitted function."""

    def __init__(self, function: EmittedFunction):
        self._store_object(function)
        super().__init__(f"{function.__name__} at {id(function)}")

    def get_call_type(self, context: Any, args: Sequence[types.Type], kws: dict[str, Any]) -> Any:
        """Return the signature of a call; the receiver passes the function to the lowering as its first argument."""
        function = self._get_object()
        for expected, given in zip(function.takes or (), args, strict=False):
            if not _is_like(expected, given):
                raise TypingError(
                    f"{function.__name__} was compiled for {expected} and got {given}: leave out trust_input, or convert it"
                )
        return signature(function.returned, *args, recvr=self)

    def get_call_signatures(self) -> tuple[list[Any], bool]:
        """Return no signatures: all argument types are accepted."""
        return [], True

    def get_impl_key(self, sig: Any) -> type:
        """Return the key under which the lowering is registered."""
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
    return function._get_object().emit(Frame(context, builder), arg_types, args[1:])
