"""Lengths that no type knows, where PyTensor compares them when a function runs.

``Y - b`` of a constant of three columns raises unless ``b`` has three entries. Its rows read ``b[[0, 1, 2]]`` and would not miss a fourth. So what
they read of a variable of open length stands behind the comparisons that the expression makes.
"""

from collections.abc import Iterator, Sequence

from pytensor.graph.basic import Apply
from pytensor.graph.traversal import applys_between
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot, eq
from pytensor.tensor.special import LogAddExp, XLog1PY, XLogY
from pytensor.tensor.variable import TensorVariable

BROADCASTS = (Elemwise, XLogY, XLog1PY, LogAddExp)
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
    if isinstance(node.op, BROADCASTS):
        for operand in node.inputs:
            yield from ((operand, axis, n) for axis, n in enumerate(node.outputs[0].type.shape))
    elif isinstance(node.op, Dot):
        left, right = node.inputs
        yield left, left.type.ndim - 1, right.type.shape[0]
        yield right, 0, left.type.shape[-1]
