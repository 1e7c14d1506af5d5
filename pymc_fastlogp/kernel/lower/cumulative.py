"""CumOp: straight-line sums along a short axis, a scan along a long one."""

from pytensor import scalar as ps
from pytensor.graph.basic import Apply

from pymc_fastlogp.kernel.ir.arithmetic import cast, domain_of, int64
from pymc_fastlogp.kernel.ir.expressions import Compute, Expr
from pymc_fastlogp.kernel.ir.loops import PrefixSum, Store
from pymc_fastlogp.kernel.lower.array import Array, of_buffer
from pymc_fastlogp.kernel.lower.context import Context

# Elements that are summed one by one, which other loops over the rows can join; more are quicker as a scan
# (``python -m benchmarks.limits``).
LONGEST = 64
OPERATIONS = {"add": ps.add, "mul": ps.mul}
DTYPES = ("float64", "float32", "int64")


def supports(node: Apply) -> bool:
    """Return whether NumPy keeps the type; it widens small integers, which upstream's type does not say."""
    return node.inputs[0].type.dtype in DTYPES


def lower(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append a store for each element along a short axis, and a loop along a long one."""
    [array] = inputs
    length = array.shape[node.op.axis]
    is_short = isinstance(length, int) and length <= LONGEST
    return [(_unrolled if is_short else _scanned)(context, node, array)]


def _unrolled(context: Context, node: Apply, array: Array) -> Array:
    axis, operation = node.op.axis, OPERATIONS[node.op.mode]
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
    return of_buffer(buffer)


def _scanned(context: Context, node: Apply, array: Array) -> Array:
    axis, operation = node.op.axis, OPERATIONS[node.op.mode]
    buffer = context.buffer(array.dtype, array.shape)
    domain, index = domain_of((*_without(array.shape, axis), array.shape[axis]))
    at = (*index[:axis], index[-1], *index[axis:-1])
    context.add(domain, PrefixSum(buffer, at, operation, array.at(at)))
    return of_buffer(buffer)


def _without(shape: tuple, axis: int) -> tuple:
    return (*shape[:axis], *shape[axis + 1 :])
