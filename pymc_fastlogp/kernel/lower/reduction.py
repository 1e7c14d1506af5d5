"""CAReduce: a loop that stores the identity and one that accumulates."""

from pytensor import scalar as ps
from pytensor.graph.basic import Apply
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.math import MulWithoutZeros

from pymc_fastlogp.kernel.ir.arithmetic import cast, const, identity, switch, truth
from pymc_fastlogp.kernel.ir.expressions import Expr
from pymc_fastlogp.kernel.lower.array import Array
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.scalars.forms import FORMS

OPERATIONS = (ps.Add, ps.Mul, ps.Maximum, ps.Minimum, ps.AND, ps.OR, ps.XOR, MulWithoutZeros)


def supports(node: Apply) -> bool:
    """Return whether the operation is one that a loop accumulates, and its type has a form in registers."""
    is_held = node.op.acc_dtype is None or node.op.acc_dtype in FORMS
    return is_held and isinstance(node.op.scalar_op, OPERATIONS)


def lower(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append the loops; the accumulation has the type ``acc_dtype``."""
    [array] = inputs
    op, output = node.op, node.outputs[0].type.dtype
    axes = tuple(range(array.ndim)) if op.axis is None else op.axis
    dtype = op.acc_dtype or output
    wide = Array(array.shape, dtype, lambda index: cast(array.at(index), dtype))
    scalar_op: ScalarOp = op.scalar_op
    if isinstance(scalar_op, MulWithoutZeros):
        scalar_op, wide = ps.mul, _without_zeros(wide)
    result = context.reduce(scalar_op, identity(scalar_op, dtype), wide, axes)
    if dtype == output:
        return [result]
    return [context.store(result.shape, output, lambda index: cast(result.at(index), output))]


def _without_zeros(array: Array) -> Array:
    """Return the array with ones in place of zeros."""
    zero, one = const(0, array.dtype), const(1, array.dtype)

    def at(index: tuple[Expr, ...]) -> Expr:
        value = array.at(index)
        is_zero = truth(ps.eq, value, zero)
        return switch(is_zero, one, value)

    return Array(array.shape, array.dtype, at)
