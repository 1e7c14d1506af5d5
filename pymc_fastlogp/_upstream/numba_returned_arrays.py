"""Private Numba APIs: a type for arrays that a compiled graph returns, and their assignment to memory of the caller.

nutpie assigns the gradient by ``out[...] = gradient``. For Numba's own array type the assignment includes code that formats the error message of
a shape mismatch, which takes longer to compile than the rest of the callback. Numba selects the code of an assignment by type, so results have a separate type.
Its assignment is a loop, and its error has a constant message. Code for all other arrays is unchanged.
"""

import operator
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import lower_builtin, lower_cast, models, register_model
from numba.np import arrayobj
from pytensor.graph.basic import Apply

from pymc_fastlogp._upstream.numba import I64, Frame

MISMATCH = "cannot assign slice from input of different shape"
NO_RESULT = "the function that returns the array has raised an exception"


class ReturnedArray(types.Array):
    """Type of a writable array in C order that a compiled graph returns.

    The type converts to, and unifies with, the type of any array of the same dtype. Views have the type, too.

    Parameters
    ----------
    dtype : numba.types.Type
        Type of the elements.
    ndim : int
        Number of dimensions.
    """

    def __init__(self, dtype: types.Type, ndim: int):
        super().__init__(dtype, ndim, "C", name=f"returned_array({dtype}, {ndim}d)")


register_model(ReturnedArray)(models.ArrayModel)


def returned_outputs(
    node: Apply,
    storage_map: dict[Any, Any] | None = None,
    output_storage: Sequence[Any] = (),
    **others: Any,
) -> list[bool]:
    """Return, for each output of a node, True if the compiled function returns the output and no node reads it.

    A node that reads such an output would be compiled, and cached on disk, for a second argument type.

    Parameters
    ----------
    node : Apply
        A node that Numba compiles.
    storage_map, output_storage
        Arguments of PyTensor's conversion of the node. The storage map has no variable of an inner graph.
    """
    storages = storage_map or {}
    returned = {id(storage) for storage in output_storage}
    read = {x for variable in storages if variable.owner for x in variable.owner.inputs}
    return [id(storages.get(x)) in returned and x not in read for x in node.outputs]


@lower_cast(ReturnedArray, types.Array)
def _to_array(context: Any, builder: ir.IRBuilder, from_: Any, to: Any, value: ir.Value) -> Any:
    return value


@lower_cast(ReturnedArray, types.Float)
@lower_cast(ReturnedArray, types.Integer)
@lower_cast(ReturnedArray, types.Complex)
@lower_cast(ReturnedArray, types.Boolean)
def _to_number(context: Any, builder: ir.IRBuilder, from_: Any, to: Any, value: ir.Value) -> Any:
    """Return the element of a 0-d array, for which Numba would compile a call of ``take``."""
    array = arrayobj.make_array(from_)(context, builder, value)
    _raise_without_result(Frame(context, builder), array.data)
    element = arrayobj.load_item(context, builder, from_, array.data)
    return context.cast(builder, element, from_.dtype, to)


@lower_builtin(operator.setitem, types.Array, types.EllipsisType, ReturnedArray)
def _assign(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> Any:
    """Copy an array to a whole array in C order; leave other assignments to Numba."""
    to_type, _, from_type = sig.args
    if to_type.layout != "C" or to_type.ndim != from_type.ndim:
        return arrayobj.setitem_array(context, builder, sig, args)
    frame = Frame(context, builder)
    to = arrayobj.make_array(to_type)(context, builder, args[0])
    shape = cgutils.unpack_tuple(builder, to.shape)
    data, *sizes = frame.arguments_of(from_type, args[2])
    _raise_without_result(frame, data)
    strides = []
    for expected, length, stride in zip(
        shape, sizes[: to_type.ndim], sizes[to_type.ndim :], strict=True
    ):
        is_broadcast = builder.icmp_signed("==", length, I64(1))
        is_right = builder.or_(is_broadcast, builder.icmp_signed("==", length, expected))
        with builder.if_then(builder.not_(is_right), likely=False):
            frame.raise_error(ValueError, MISMATCH)
        strides.append(builder.select(is_broadcast, I64(0), stride))
    frame.copy_elements(from_type, data, strides, shape, to.data, to_type.dtype)
    return context.get_dummy_value()


def _raise_without_result(frame: Frame, data: ir.Value) -> None:
    """Append an exception for an array without memory.

    After a call that raises in a ``try`` block, Numba executes the basic block to its end, with null as the result of the call.
    """
    with frame.builder.if_then(cgutils.is_null(frame.builder, data), likely=False):
        frame.raise_error(ValueError, NO_RESULT)
