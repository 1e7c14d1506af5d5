"""CheckAndRaise: straight-line code that ends the kernel where a condition is false."""

from pytensor.graph.basic import Apply

from pymc_fastlogp.kernel.expressions import cast
from pymc_fastlogp.kernel.loops import Error
from pymc_fastlogp.kernel.lower.array import Array
from pymc_fastlogp.kernel.lower.context import Context


def lower(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append the checks, and return the value."""
    value, *conditions = inputs
    for condition in conditions:
        error = Error(node.op.exc_type, node.op.msg)
        context.require(cast(condition.at(()), "bool"), error)
    return [value.view(value.shape, lambda index: index)]
