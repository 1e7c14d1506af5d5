"""Infer the static shape of an output again, after its inputs got a static shape.

.. code::

    f(x): shape (?, ?)  ->  f(x): shape (n, m)

PyTensor infers the type of an output when an Op is applied. The type stays when a rewrite replaces an input by one of known
shape. ``LKJCorr`` with two variables starts with a mask whose shape is unknown until it is folded. ``LKJCholeskyCov`` gathers
the diagonal of its factor by an index whose length is an expression at first. Without the rule no later type would know its
shape, and rules that need a static shape would refuse.

When it applies
---------------
To ``Elemwise``, ``DimShuffle``, reductions, gathers by one array along the first axis, ``set`` and ``inc``, ``ExtractDiag`` and
``Pad``, if the same Op of the same inputs now has more known lengths.

When it refuses
---------------
Lengths that contradict each other: PyTensor raises when the function is called.
"""

from collections.abc import Callable

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import ExtractDiag
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import All, Any, Max, Min, Prod, Sum
from pytensor.tensor.pad import Pad
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor
from pytensor.tensor.variable import TensorVariable

type Shape = tuple[int | None, ...]

# Ops that are cheap to apply again, and infer the shape of their output from their inputs.
OPS = [
    Elemwise,
    DimShuffle,
    CAReduce,
    AdvancedSubtensor,
    IncSubtensor,
    AdvancedIncSubtensor,
    ExtractDiag,
    Pad,
]


@node_rewriter(OPS)
def local_static_output(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``f(x) -> f(x)`` with more known lengths in its type."""
    if all(None not in out.type.shape for out in node.outputs) or not _may_gain(node):
        return None
    try:  # not make_node, which does not rebuild a SymbolicOp's graph
        again = node.op(*node.inputs, return_list=True)
    except (ValueError, TypeError):
        # Known lengths do not fit, or a dropped axis is longer than one. PyTensor raises when the function is called.
        return None
    if all(
        _n_known(new.type.shape) <= _n_known(old.type.shape)
        for new, old in zip(again, node.outputs, strict=True)
    ):
        return None
    copy_stack_trace(node.outputs, again)
    return again


def _may_gain(node: Apply) -> bool:
    """Return whether the Op may infer more known lengths now, without applying it."""
    shape_now = SHAPES.get(type(node.op))
    return shape_now is None or _n_known(shape_now(node)) > _n_known(node.outputs[0].type.shape)


def _n_known(shape: Shape) -> int:
    return len(shape) - shape.count(None)


def _of_elemwise(node: Apply) -> Shape:
    lengths = zip(*(x.type.shape for x in node.inputs), strict=True)
    return tuple(map(_broadcast, lengths))


def _broadcast(lengths: Shape) -> int | None:
    """Return the length of a broadcast axis; None if it is unknown."""
    unknown = None in lengths
    return next((n for n in lengths if n is not None and n != 1), None if unknown else 1)


def _of_dimshuffle(node: Apply) -> Shape:
    shape = node.inputs[0].type.shape
    return tuple(1 if axis == "x" else shape[axis] for axis in node.op.new_order)


def _of_reduction(node: Apply) -> Shape:
    shape, axes = node.inputs[0].type.shape, node.op.axis
    return () if axes is None else tuple(n for axis, n in enumerate(shape) if axis not in axes)


def _of_gather(node: Apply) -> Shape:
    """Return the shape of a gather by one array along the first axis; for other indices the known shape."""
    x, *index = node.inputs
    if node.op.idx_list != (0,):
        shape: Shape = node.outputs[0].type.shape
        return shape
    return (*index[0].type.shape, *x.type.shape[1:])


def _of_write(node: Apply) -> Shape:
    shape: Shape = node.inputs[0].type.shape
    return shape


# Static shape of an Op's output. Other Ops are applied to find it.
SHAPES: dict[type, Callable[[Apply], Shape]] = {
    Elemwise: _of_elemwise,
    DimShuffle: _of_dimshuffle,
    **dict.fromkeys((Sum, Prod, Max, Min, All, Any), _of_reduction),
    AdvancedSubtensor: _of_gather,
    **dict.fromkeys((IncSubtensor, AdvancedIncSubtensor), _of_write),
}
