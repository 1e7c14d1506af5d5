"""Apply an Op again where the shapes of its inputs have become known since it was applied.

.. code::

    f(x): shape (?, ?)  ->  f(x): shape (n, m)

A rewrite may replace a variable by one whose shape is known, but what was computed from the old one keeps its
type. ``LKJCorr`` with two variables, the commonest size, starts with a mask whose shape is not known
until it has become a constant; no type after it would know its shape, and every rule that asks for one would refuse.
"""

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import ExtractDiag
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.pad import Pad
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor
from pytensor.tensor.variable import TensorVariable

# What is cheap to apply again, and finds the shape of its output from those of its inputs.
OPS = [Elemwise, DimShuffle, CAReduce, IncSubtensor, AdvancedIncSubtensor, ExtractDiag, Pad]


@node_rewriter(OPS)
def local_static_output(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``f(x) -> f(x)`` with a type that knows more of the shape."""
    if all(None not in out.type.shape for out in node.outputs):
        return None
    # Not make_node: what is a graph has to be built again.
    again = node.op(*node.inputs, return_list=True)
    if all(_n_known(new) <= _n_known(old) for new, old in zip(again, node.outputs, strict=True)):
        return None
    copy_stack_trace(node.outputs, again)
    return again


def _n_known(x: TensorVariable) -> int:
    return sum(length is not None for length in x.type.shape)
