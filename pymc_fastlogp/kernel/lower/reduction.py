"""CAReduce as a loop that stores the identity and a loop that accumulates; CumOp as a prefix sum, or as straight-line code along a short axis."""

from pytensor import scalar as ps
from pytensor.graph.basic import Apply
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.math import MulWithoutZeros

from pymc_fastlogp.kernel.ir.arithmetic import (
    cast,
    const,
    domain_of,
    identity,
    int64,
    switch,
    truth,
)
from pymc_fastlogp.kernel.ir.expressions import Compute, Expr
from pymc_fastlogp.kernel.ir.loops import PrefixSum, Store
from pymc_fastlogp.kernel.lower.array import Array, buffer_array
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.scalars.forms import FORMS

OPERATIONS = (ps.Add, ps.Mul, ps.Maximum, ps.Minimum, ps.AND, ps.OR, ps.XOR, MulWithoutZeros)
# Longest axis that becomes straight-line code, which can be fused with other loops over the rows. Longer axes are faster as a prefix sum
# (``python -m benchmarks.limits``).
LONGEST = 64
CUMULATIVE_OPERATIONS = {"add": ps.add, "mul": ps.mul}
CUMULATIVE_DTYPES = ("float64", "float32", "int64")


def supports_reduction(node: Apply) -> bool:
    """Return whether loops can accumulate with the operation, and vector registers can hold its dtype."""
    has_form = node.op.acc_dtype is None or node.op.acc_dtype in FORMS
    return has_form and isinstance(node.op.scalar_op, OPERATIONS)


def lower_reduction(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append the loops, which accumulate in ``acc_dtype``."""
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
    """Return the array with zeros replaced by ones."""
    zero, one = const(0, array.dtype), const(1, array.dtype)

    def at(index: tuple[Expr, ...]) -> Expr:
        value = array.at(index)
        is_zero = truth(ps.eq, value, zero)
        return switch(is_zero, one, value)

    return Array(array.shape, array.dtype, at)


def supports_cumulative(node: Apply) -> bool:
    """Return whether NumPy keeps the dtype. It widens small integers, while upstream's output type does not."""
    return node.inputs[0].type.dtype in CUMULATIVE_DTYPES


def lower_cumulative(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append one store per element along a short axis, or a prefix sum along a long axis."""
    [array] = inputs
    length = array.shape[node.op.axis]
    is_short = isinstance(length, int) and length <= LONGEST
    return [(_unrolled if is_short else _prefix_sum)(context, node, array)]


def _unrolled(context: Context, node: Apply, array: Array) -> Array:
    axis, operation = node.op.axis, CUMULATIVE_OPERATIONS[node.op.mode]
    domain, index = domain_of(_without(array.shape, axis))
    buffer = context.buffer(array.dtype, array.shape)
    stores: list[Store] = []
    total: Expr | None = None
    for k in range(array.shape[axis]):
        at = (*index[:axis], int64(k), *index[axis:])
        value = cast(array.at(at), array.dtype)
        total = value if total is None else Compute(operation, (total, value), array.dtype)
        stores.append(Store(buffer, at, total))
    context.add(domain, *stores)
    return buffer_array(buffer)


def _prefix_sum(context: Context, node: Apply, array: Array) -> Array:
    axis, operation = node.op.axis, CUMULATIVE_OPERATIONS[node.op.mode]
    buffer = context.buffer(array.dtype, array.shape)
    domain, index = domain_of((*_without(array.shape, axis), array.shape[axis]))
    at = (*index[:axis], index[-1], *index[axis:-1])
    context.add(domain, PrefixSum(buffer, at, operation, array.at(at)))
    return buffer_array(buffer)


def _without(shape: tuple, axis: int) -> tuple:
    return (*shape[:axis], *shape[axis + 1 :])
