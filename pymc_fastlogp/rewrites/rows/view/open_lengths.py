"""Lengths that no type knows, where PyTensor compares them when a function runs.

``Y - b`` of a constant of three columns raises unless ``b`` has three entries. Its rows read ``b[[0, 1, 2]]`` and would not miss a fourth. So what
they read of a variable of open length stands behind the comparisons that the expression makes: of operands that are broadcast,
multiplied as matrices, joined, or repeated.
"""

from collections.abc import Iterator, Sequence

from pytensor.graph.basic import Apply
from pytensor.graph.traversal import applys_between
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, Join
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot, eq
from pytensor.tensor.special import LogAddExp, XLog1PY, XLogY
from pytensor.tensor.variable import TensorVariable

# Axes of operands are as long as those of the output. Along the axis of a join that is not so, but its length is open if one of theirs is.
ALIGNED = (Elemwise, XLogY, XLog1PY, LogAddExp, Join, Alloc)
FIT = CheckAndRaise(ValueError, "Incompatible lengths: arrays that are combined do not fit.")


def comparisons(*variables: TensorVariable) -> tuple[TensorVariable, ...]:
    """Return what must be true for some variables: that axes are as long as others, whose lengths types know."""
    found = {
        (operand, axis): length
        for node in applys_between([], variables)
        for operand, axis, length in _compared(node)
        if length not in (None, 1) and operand.type.shape[axis] is None
    }
    return tuple(eq(operand.shape[axis], length) for (operand, axis), length in found.items())


def fitting(x: TensorVariable, conditions: Sequence[TensorVariable]) -> TensorVariable:
    """Return a variable behind comparisons, if types do not know its lengths."""
    return FIT(x, *conditions) if conditions and None in x.type.shape else x


def _compared(node: Apply) -> Iterator[tuple[TensorVariable, int, int | None]]:
    """Yield the axes of operands that a node compares, each with the length that it should have."""
    if isinstance(node.op, ALIGNED):
        lengths = node.outputs[0].type.shape
        # What is repeated may have fewer axes; the other inputs are lengths.
        for x in node.inputs[:1] if isinstance(node.op, Alloc) else node.inputs:
            own = lengths[len(lengths) - x.type.ndim :]
            yield from ((x, axis, n) for axis, n in enumerate(own))
    elif isinstance(node.op, Dot):
        left, right = node.inputs
        yield left, left.type.ndim - 1, right.type.shape[0]
        yield right, 0, left.type.shape[-1]
