r"""Give costly functions, and scatters, a loop of their own, so that the arithmetic between them becomes vectors.

.. code::

    for i: e = exp(d[i]); out[g[i]] += f(e, ..)  ->  for i: e[i] = exp(d[i])
                                                     for i: t[i] = f(e[i], ..)
                                                     for i: out[g[i]] += t[i]

PyTensor's fusion makes one loop of all. LLVM leaves it scalar if it calls the C library or adds to memory at an index, and around a call
all that is in registers has to be saved. Where there is much arithmetic besides, switches above all, it costs more
than the calls. What is apart is stored and loaded once for each element, which is less; the functions themselves and the operations
on each element stay what they are, so that results differ by the order of sums alone.

The loop of :mod:`~pymc_fastlogp.rewrites.compiled.unit_log1p` is apart for the same end: it becomes vectors, too, and what has to call does not.

This is for the ``Composite`` nodes that PyTensor's fusion made and no kernel took; kernels call nothing.
"""

from collections.abc import Sequence
from math import prod

import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import GraphRewriter, copy_stack_trace
from pytensor.graph.traversal import explicit_graph_inputs
from pytensor.scalar.basic import ScalarVariable
from pytensor.tensor.basic import tensor_copy
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import AdvancedIncSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp import decisions
from pymc_fastlogp.analysis.elemwise import is_elemwise
from pymc_fastlogp.analysis.scalar_facts import Cost, ops_where
from pymc_fastlogp.rewrites.compiled.unit_log1p import UnitLog1p

NAME = "fastlogp_loop_fission"

# What goes before the arithmetic, one loop after another: calls of the C library, and what becomes vectors.
STAGES = (ops_where(lambda facts: facts.cost >= Cost.FUNCTION), (UnitLog1p,))

# So many scalar operations have to be left. 67 of a negative binomial take half as long apart; 31 of an item response model take longer, since
# PyTensor fuses a gather with one reader alone.
ARITHMETIC = 50

# So long a loop has to be that allocating arrays does not count.
LENGTH = 256


class LoopFission(GraphRewriter):
    """Split each long ``Composite`` with much arithmetic."""

    def apply(self, fgraph: FunctionGraph) -> None:
        """Split them in a graph."""
        for node in fgraph.toposort():
            if not _is_long_loop(node):
                continue
            rest = node
            for functions in STAGES:
                rest = without(rest, functions)
            if rest is node:
                continue
            copy_stack_trace(node.outputs, rest.outputs)
            decisions.fired(NAME, node.outputs[0])
            both = zip(node.outputs, rest.outputs, strict=True)
            fgraph.replace_all_validate(list(both), reason=NAME)
            _scatter_apart(fgraph, rest.outputs)


def _is_long_loop(node: Apply) -> bool:
    # Only of an Elemwise is each output a tensor: a random variable gives out its generator first.
    if not is_elemwise(node.op, ps.Composite):
        return False
    shape = node.outputs[0].type.shape
    return None not in shape and prod(shape) >= LENGTH


def without(node: Apply, functions: tuple[type[ps.ScalarOp], ...]) -> Apply:
    """Return a node with the same outputs that reads these functions from another one.

    It is the same node where it has none of them or gives one out, and where too little arithmetic would be left.
    """
    fgraph = node.op.scalar_op.fgraph.unfreeze()
    costly = [n.outputs[0] for n in fgraph.toposort() if isinstance(n.op, functions)]
    if not costly or not set(costly).isdisjoint(fgraph.outputs):
        return node
    given = {x: x.type() for x in costly}
    outputs = clone_replace(list(fgraph.outputs), given)
    read = {*explicit_graph_inputs(outputs)}
    apart = [x for x in costly if given[x] in read]
    if not apart:
        return node
    tensors = dict(zip(fgraph.inputs, node.inputs, strict=True))
    first = _elemwise(tensors, apart)
    values = {given[x]: value for x, value in zip(apart, first.outputs, strict=True)}
    rest = _elemwise(tensors | values, outputs)
    same_types = [x.type for x in rest.outputs] == [x.type for x in node.outputs]
    enough = len(rest.op.scalar_op.fgraph.apply_nodes) >= ARITHMETIC
    return rest if same_types and enough else node


def _elemwise(
    tensors: dict[ScalarVariable, TensorVariable], outputs: Sequence[ScalarVariable]
) -> Apply:
    """Return a node that computes scalar expressions for all elements of those tensors they read."""
    read = {*explicit_graph_inputs(outputs)}
    inputs = [x for x in tensors if x in read]
    return Elemwise(ps.Composite(inputs, list(outputs))).make_node(*(tensors[x] for x in inputs))


def _scatter_apart(fgraph: FunctionGraph, outputs: Sequence[TensorVariable]) -> None:
    """Let each scatter read a copy, with which PyTensor fuses it, instead of what makes the elements."""
    for out in outputs:
        for client, i in list(fgraph.clients[out]):
            if i == 1 and isinstance(client.op, AdvancedIncSubtensor):
                fgraph.change_node_input(client, i, tensor_copy(out), reason=NAME)
