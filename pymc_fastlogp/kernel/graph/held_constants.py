"""``HeldConstants``: the large constants of a graph as the outputs of one node.

Numba embeds a constant of up to 1 MB in the code of each function that reads it, and does not cache functions that read a larger one. The code of this
node looks up the address of each array in :mod:`pymc_fastlogp.kernel.native.constant_memory`, which avoids both.
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
from pymc_fastlogp.kernel.graph.linking import can_be_linked, register_with_numba
from pymc_fastlogp.kernel.native.constant_memory import hold_array


class HeldConstants(Op):
    """Op without inputs whose outputs are read-only constant arrays of any dtype and shape."""

    __props__: ClassVar[tuple[str, ...]] = ("symbols",)

    def __init__(self, arrays: Sequence[np.ndarray]):
        self.held = tuple(map(hold_array, arrays))

    @property
    def symbols(self) -> tuple[str, ...]:
        """The content-derived names of the arrays."""
        return tuple(held.symbol for held in self.held)

    def make_node(self) -> Apply:
        """Return a node with one output per array."""
        held_types = [TensorType(held.array.dtype, held.array.shape) for held in self.held]
        return Apply(self, [], [type_() for type_ in held_types])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: list[list[Any]]) -> None:
        """Store the arrays as outputs."""
        for storage, held in zip(output_storage, self.held, strict=True):
            storage[0] = held.array

    def do_constant_folding(self, fgraph: FunctionGraph, node: Apply) -> bool:
        """Disable constant folding, which would turn the outputs back into constants."""
        return False

    def __reduce__(self) -> tuple:
        """Pickle the arrays; unpickling registers them in the memory of the new process."""
        return _unpickle, ([held.array for held in self.held],)

    def __str__(self) -> str:
        return f"HeldConstants{{{sum(held.array.nbytes for held in self.held)} bytes}}"


def _unpickle(arrays: Sequence[np.ndarray]) -> HeldConstants:
    register_with_numba()  # PyTensor may link the unpickled graph without running our rewrites
    return HeldConstants(arrays)


class HoldConstants(GraphRewriter):
    """Replace all constants that are too large to embed by the outputs of one node.

    A constant stays if a node writes to it or returns a view of it: PyTensor protects only constants from being
    overwritten.
    """

    def apply(self, fgraph: FunctionGraph) -> None:
        """Replace the large constants of a graph."""
        uses = defaultdict(list)
        for node in fgraph.toposort():
            for i, x in enumerate(node.inputs):
                if _is_large(x) and _only_reads(node, i):
                    uses[x].append((node, i))
        if not uses or not can_be_linked(fgraph):
            return
        results = HeldConstants([x.data for x in uses]).make_node().outputs
        for clients, result in zip(uses.values(), results, strict=True):
            for node, i in clients:
                fgraph.change_node_input(node, i, result, reason="fastlogp_held_constants")


def _is_large(x: Variable) -> bool:
    return isinstance(x.type, DenseTensorType) and isinstance(x, Constant) and not is_embedded(x)


def _only_reads(node: Apply, i: int) -> bool:
    """Return whether a node neither overwrites an input nor returns a view of it."""
    maps = (*node.op.view_map.values(), *node.op.destroy_map.values())
    return not any(i in aliased for aliased in maps)
