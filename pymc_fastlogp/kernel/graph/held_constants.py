"""``HeldConstants``: the large constants of a graph as the results of a node.

Numba makes a constant of up to 1 MB part of the code of each function that reads it, and does not keep code on
disk that reads a larger one. A node whose code looks up the address avoids both; see
:mod:`pymc_fastlogp.kernel.native.constant_memory` for the memory.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.tensor.type import DenseTensorType, TensorType

from pymc_fastlogp.kernel.graph.boundary import is_embedded
from pymc_fastlogp.kernel.graph.linking import can_be_linked, tell_numba
from pymc_fastlogp.kernel.native.constant_memory import hold


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
        return _unpickled, ([held.array for held in self.held],)

    def __str__(self) -> str:
        return f"HeldConstants{{{sum(held.array.nbytes for held in self.held)} bytes}}"


def _unpickled(arrays: Sequence[np.ndarray]) -> HeldConstants:
    tell_numba()  # which may link it without another look at the graph
    return HeldConstants(arrays)


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
        if not places or not can_be_linked(fgraph):
            return
        results = HeldConstants([x.data for x in places]).make_node().outputs
        for clients, result in zip(places.values(), results, strict=True):
            for node, i in clients:
                fgraph.change_node_input(node, i, result, reason="fastlogp_held_constants")


def _is_large(x: Variable) -> bool:
    return isinstance(x.type, DenseTensorType) and isinstance(x, Constant) and not is_embedded(x)


def _only_reads(node: Apply, i: int) -> bool:
    """Return whether a node neither writes to an input nor hands it on."""
    maps = (*node.op.view_map.values(), *node.op.destroy_map.values())
    return not any(i in aliased for aliased in maps)
