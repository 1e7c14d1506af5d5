"""Large constants in Numba: loads of their addresses, see :mod:`pymc_fastlogp.kernel.graph.held_constants`."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from llvmlite import ir
from numba import types
from pytensor.graph.basic import Apply

from pymc_fastlogp._upstream.numba import (
    EmittedFunction,
    Frame,
    array_type,
    register_funcify_and_cache_key,
    returned_type,
)
from pymc_fastlogp.kernel.graph.held_constants import HeldConstants
from pymc_fastlogp.kernel.llvm import I64
from pymc_fastlogp.kernel.native import machine_code
from pymc_fastlogp.kernel.native.constant_memory import HeldArray
from pymc_fastlogp.kernel.native.pointer_cells import declared


@register_funcify_and_cache_key(HeldConstants)
def funcify(op: HeldConstants, node: Apply, **kwargs: Any) -> tuple[EmittedFunction, str]:
    """Compile to loads of the addresses. The returned function keeps the arrays alive."""
    key = sha256("\n".join([machine_code.compiler(), *op.symbols]).encode())
    return _function(op.held), key.hexdigest()


def _function(arrays: Sequence[HeldArray]) -> EmittedFunction:
    array_types = [
        array_type(held.array.dtype, held.array.ndim, held.layout, readonly=True) for held in arrays
    ]

    def emit(frame: Frame, *nothing: Any) -> ir.Value:
        values = [_array(frame, type_, held) for type_, held in zip(array_types, arrays)]
        return frame.results(array_types, values)

    def in_python() -> Any:
        values = tuple(held.array for held in arrays)
        return values if len(values) > 1 else values[0]

    returned = returned_type(array_types)
    return EmittedFunction("held_constants", returned, emit, in_python, tuple(arrays))


def _array(frame: Frame, type_: types.Array, held: HeldArray) -> ir.Value:
    """Return the array at the address that a cell holds."""
    place = declared(frame.builder.module, held.symbol, frame.pointer_to(type_))
    lengths, strides = (list(map(I64, sizes)) for sizes in (held.array.shape, held.array.strides))
    return frame.array(type_, frame.builder.load(place), lengths, strides)
