"""Run-time checks of lengths that are not static, so that the view of rows raises wherever PyTensor raises.

``Y - b`` with a constant ``Y`` of three columns raises unless ``b`` has three entries. Rows that read ``b[[0, 1, 2]]``
would not raise for a fourth entry. So a view reads a variable of unknown length only after the checks that the
expression implies: of operands that are broadcast, multiplied as matrices, joined, or repeated.
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

# Ops whose operands have the axis lengths of the output. The axis of a join is longer, but its length is unknown if the
# length of an operand is.

ALIGNED = (Elemwise, XLogY, XLog1PY, LogAddExp, Join, Alloc)
LENGTH_CHECK = CheckAndRaise(
    ValueError, "Incompatible lengths: arrays that are combined do not fit."
)


def length_checks(*variables: TensorVariable) -> tuple[TensorVariable, ...]:
    """Return the conditions under which variables can be computed: each unknown length equals the static length of another operand."""
    found = {
        (operand, axis): length
        for node in applys_between([], variables)
        for operand, axis, length in _compared(node)
        if length not in (None, 1) and operand.type.shape[axis] is None
    }
    return tuple(eq(operand.shape[axis], length) for (operand, axis), length in found.items())


def after_length_checks(x: TensorVariable, conditions: Sequence[TensorVariable]) -> TensorVariable:
    """Return ``x`` behind an assertion of the conditions, or ``x`` itself if its shape is static."""
    return LENGTH_CHECK(x, *conditions) if conditions and None in x.type.shape else x


def _compared(node: Apply) -> Iterator[tuple[TensorVariable, int, int | None]]:
    """Yield the axes of operands that a node compares, each with its required length."""
    if isinstance(node.op, ALIGNED):
        lengths = node.outputs[0].type.shape
        # The repeated value may have fewer axes; the other inputs of Alloc are lengths.
        for x in node.inputs[:1] if isinstance(node.op, Alloc) else node.inputs:
            own = lengths[len(lengths) - x.type.ndim :]
            yield from ((x, axis, n) for axis, n in enumerate(own))
    elif isinstance(node.op, Dot):
        left, right = node.inputs
        yield left, left.type.ndim - 1, right.type.shape[0]
        yield right, 0, left.type.shape[-1]
