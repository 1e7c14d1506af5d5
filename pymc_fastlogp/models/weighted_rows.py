"""Random rows with frequency weights: the Op that stands for repeated rows of a table in a PyMC model.

A separate module, because PyMC is imported at the first use of a model, not with the package.
"""

from typing import Any

from pymc.logprob.abstract import MeasurableOp
from pymc.logprob.basic import logp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise

from pymc_fastlogp._upstream.pymc_dispatch import logprob_of


class WeightedRows(MeasurableOp, Op):
    """Random rows, each of which stands for a number of equal rows.

    Parameters
    ----------
    axis : int
        Axis of the log density along which the rows are.
    """

    __props__ = ("axis",)

    def __init__(self, axis: int):
        self.axis = axis

    def make_node(self, rows: Variable, weights: Variable) -> Apply:
        """Return the node of rows and the vector of their weights."""
        return Apply(self, [rows, weights], [rows.type()])

    def perform(self, node: Apply, inputs: list[Any], outputs: list[list[Any]]) -> None:
        """Return the rows."""
        outputs[0][0] = inputs[0].copy()

    def infer_shape(self, node: Apply, shapes: list[Any]) -> list[Any]:
        """Return the shape of the rows."""
        return [shapes[0]]


@logprob_of.register(WeightedRows)
def _logprob_of_weighted_rows(
    op: WeightedRows, values: Any, rows: Variable, weights: Variable, **kwargs: Any
) -> Variable:
    [value] = values
    return weighted(logp(rows, value, warn_rvs=False, **kwargs), weights, op.axis)


def weighted(x: Any, weights: Any, axis: int) -> Any:
    """Multiply each row by its weight, below the checks of parameters, where the rules about rows find the sum."""
    if isinstance(x.owner_op, CheckAndRaise):
        inner, *conditions = x.owner.inputs
        return x.owner.op(weighted(inner, weights, axis), *conditions)
    order: list[Any] = ["x"] * x.type.ndim
    order[axis] = 0
    return weights.dimshuffle(order) * x
