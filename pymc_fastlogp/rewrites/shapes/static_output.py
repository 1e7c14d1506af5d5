"""``f(x): shape (?, ?) -> f(x): shape (n, m)``: infer static shapes again where inputs have learned theirs.

.. code::

    f(x): shape (?, ?)  ->  f(x): shape (n, m)

A rewrite may replace a variable by one whose shape is known, but what was computed from the old one keeps its
type. ``LKJCorr`` with two variables, the commonest size, starts with a mask whose shape is not known
until it has become a constant; no type after it would know its shape, and every rule that asks for one would refuse.
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

# What is cheap to apply again, and finds the shape of its output from those of its inputs.
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
    """Rewrite ``f(x) -> f(x)`` with a type that knows more of the shape."""
    if all(None not in out.type.shape for out in node.outputs) or not _may_learn(node):
        return None
    try:  # not make_node: what is a graph has to be built again
        again = node.op(*node.inputs, return_list=True)
    except (ValueError, TypeError):
        # Lengths that are known by now do not fit, or an axis is dropped that is longer than one; upstream raises it when the function is called.
        return None
    if all(
        _n_known(new.type.shape) <= _n_known(old.type.shape)
        for new, old in zip(again, node.outputs, strict=True)
    ):
        return None
    copy_stack_trace(node.outputs, again)
    return again


def _may_learn(node: Apply) -> bool:
    """Return whether the Op would find more of the shape now: which takes far less than to apply it for nothing."""
    shape_now = SHAPES.get(type(node.op))
    return shape_now is None or _n_known(shape_now(node)) > _n_known(node.outputs[0].type.shape)


def _n_known(shape: Shape) -> int:
    return len(shape) - shape.count(None)


def _of_elemwise(node: Apply) -> Shape:
    lengths = zip(*(x.type.shape for x in node.inputs), strict=True)
    return tuple(map(_broadcast, lengths))


def _broadcast(lengths: Shape) -> int | None:
    """Return the length of an axis, which an operand may have that is not known to be one."""
    unknown = None in lengths
    return next((n for n in lengths if n is not None and n != 1), None if unknown else 1)


def _of_dimshuffle(node: Apply) -> Shape:
    shape = node.inputs[0].type.shape
    return tuple(1 if axis == "x" else shape[axis] for axis in node.op.new_order)


def _of_reduction(node: Apply) -> Shape:
    shape, axes = node.inputs[0].type.shape, node.op.axis
    return () if axes is None else tuple(n for axis, n in enumerate(shape) if axis not in axes)


def _of_gather(node: Apply) -> Shape:
    """Return the shape where one array of indices picks along the first axis, which is what PyMC does; else the one that is known."""
    x, *index = node.inputs
    if node.op.idx_list != (0,):
        shape: Shape = node.outputs[0].type.shape
        return shape
    return (*index[0].type.shape, *x.type.shape[1:])


def _of_write(node: Apply) -> Shape:
    shape: Shape = node.inputs[0].type.shape
    return shape


# The static shape that an Op finds; those that are not here are applied.
SHAPES: dict[type, Callable[[Apply], Shape]] = {
    Elemwise: _of_elemwise,
    DimShuffle: _of_dimshuffle,
    **dict.fromkeys((Sum, Prod, Max, Min, All, Any), _of_reduction),
    AdvancedSubtensor: _of_gather,
    **dict.fromkeys((IncSubtensor, AdvancedIncSubtensor), _of_write),
}
