"""``HeldConstants``: the large constants of a graph as the results of a node.

Numba makes a constant of up to 1 MB part of the code of each function that reads it, and does not keep code on
disk that reads a larger one. A node whose code looks up the address avoids both; see
:mod:`pymc_fastlogp.kernel.numba.held` for the memory.
"""

from collections import defaultdict
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np
from llvmlite import ir
from numba import types
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.tensor.type import DenseTensorType, TensorType

from pymc_fastlogp._upstream.numba import (
    EmittedFunction,
    Frame,
    array_type,
    register_funcify_and_cache_key,
    returned_type,
)
from pymc_fastlogp.kernel.graph.boundary import is_embedded
from pymc_fastlogp.kernel.llvm import I64
from pymc_fastlogp.kernel.native import machine_code
from pymc_fastlogp.kernel.numba.cells import declared
from pymc_fastlogp.kernel.numba.held import Held, hold


class HeldConstants(Op):
    """Arrays of any type and shape, each an output. Nothing may write to them."""

    __props__: ClassVar[tuple[str, ...]] = ("symbols",)

    def __init__(self, arrays: Sequence[np.ndarray]):
        self.held = tuple(map(hold, arrays))

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the arrays, which stand for their elements."""
        return tuple(held.symbol for held in self.held)

    def make_node(self) -> Apply:
        """Return the node."""
        held_types = [TensorType(held.array.dtype, held.array.shape) for held in self.held]
        return Apply(self, [], [type_() for type_ in held_types])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: list[list[Any]]) -> None:
        """Return the arrays."""
        for storage, held in zip(output_storage, self.held, strict=True):
            storage[0] = held.array

    def do_constant_folding(self, fgraph: FunctionGraph, node: Apply) -> bool:
        """Stay as it is."""
        return False

    def __reduce__(self) -> tuple:
        """Pickle the arrays, which are held anew where they are unpickled."""
        return HeldConstants, ([held.array for held in self.held],)

    def __str__(self) -> str:
        return f"HeldConstants{{{sum(held.array.nbytes for held in self.held)} bytes}}"


class HoldConstants(GraphRewriter):
    """Let one node give all constants that are too large to be part of code.

    Where a node writes to its input or gives a view of it, the constant stays: only of a constant
    does PyTensor know that it must be copied first.
    """

    def apply(self, fgraph: FunctionGraph) -> None:
        """Replace the constants of a graph."""
        places = defaultdict(list)
        for node in fgraph.toposort():
            for i, x in enumerate(node.inputs):
                if _is_large(x) and _only_reads(node, i):
                    places[x].append((node, i))
        if not places:
            return
        results = HeldConstants([x.data for x in places]).make_node().outputs
        for clients, result in zip(places.values(), results, strict=True):
            for node, i in clients:
                fgraph.change_node_input(node, i, result, reason="fastlogp_held_constants")


def _is_large(x: Variable) -> bool:
    return isinstance(x.type, DenseTensorType) and isinstance(x, Constant) and not is_embedded(x)


def _only_reads(node: Apply, i: int) -> bool:
    """Whether a node neither writes to an input nor hands it on."""
    maps = (*node.op.view_map.values(), *node.op.destroy_map.values())
    return not any(i in aliased for aliased in maps)


@register_funcify_and_cache_key(HeldConstants)
def _funcify(op: HeldConstants, node: Apply, **kwargs: Any) -> tuple[EmittedFunction, str]:
    """Compile to loads of the addresses. The function that is returned keeps the arrays alive."""
    key = sha256("\n".join([machine_code.compiler(), *op.symbols]).encode())
    return _function(op.held), key.hexdigest()


def _function(arrays: Sequence[Held]) -> EmittedFunction:
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


def _array(frame: Frame, type_: types.Array, held: Held) -> ir.Value:
    """Return an array at the address that stands in a cell."""
    place = declared(frame.builder.module, held.symbol, frame.pointer_to(type_))
    lengths, strides = (list(map(I64, sizes)) for sizes in (held.array.shape, held.array.strides))
    return frame.array(type_, frame.builder.load(place), lengths, strides)
