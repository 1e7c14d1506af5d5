"""Random rows with frequency weights: the Op that stands for repeated rows of a table in a PyMC model, and the likelihoods of such rows.

A separate module, because PyMC is imported at the first use of a model, not with the package.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.abstract import MeasurableOp
from pymc.logprob.basic import logp
from pymc.pytensorf import constant_fold
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import io_toposort
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


def replace_likelihood(
    model: pm.Model,
    factor: Any,
    axis: int,
    values: Mapping[Variable, np.ndarray],
    counts: np.ndarray | None,
) -> None:
    """Replace a likelihood by that of weighted rows, in place.

    Parameters
    ----------
    model : pymc.Model
        The model.
    factor : Variable
        Observed variable or potential of the model.
    axis : int
        Axis of the rows in its elementwise log density.
    values : dict of Variable to ndarray
        Values of variables in the new rows.
    counts : ndarray, optional
        Weights of the new rows; by default each counts once.
    """
    known: dict[Variable, Variable] = {x: pt.constant(value) for x, value in values.items()}
    weights = None
    if counts is not None:  # so that draws come with the weights
        weights = pt.constant(counts.astype(config.floatX), name=f"{factor.name}_n_rows")
        model.data_vars.append(weights)
        model.add_named_variable(weights)
    if factor in model.potentials:
        [new] = rebuilt([factor], known)
        exchange_likelihood(model, factor, new if weights is None else weighted(new, weights, axis))
        return
    new, value = rebuilt([factor, model.rvs_to_values[factor]], known)
    [folded] = constant_fold([value])
    value = pt.constant(np.asarray(folded), name=factor.name)
    new = new if weights is None else WeightedRows(axis)(new, weights)
    exchange_likelihood(model, factor, new, value)


def exchange_likelihood(
    model: pm.Model, factor: Any, new: Any, value: Variable | None = None
) -> None:
    """Exchange a potential, or with ``value`` an observed variable, for another of the same name without dims, in place."""
    del model.named_vars[factor.name]
    model.named_vars_to_dims.pop(factor.name, None)
    new.name = factor.name
    if value is None:
        _exchange(model.potentials, factor, new)
    else:
        _forget_value(model, factor)
        _exchange(model.observed_RVs, factor, new)
        model.create_value_var(new, transform=None, default_transform=None, value_var=value)
    model.add_named_variable(new)


def remove_likelihood(model: pm.Model, factor: Any) -> None:
    """Remove an observed variable or a potential from a model, in place."""
    del model.named_vars[factor.name]
    if factor in model.potentials:
        model.potentials.pop(model.potentials.index(factor))
        return
    _forget_value(model, factor)
    model.observed_RVs.pop(model.observed_RVs.index(factor))


def _forget_value(model: pm.Model, factor: Any) -> None:
    # Several variables may observe one column.
    model.values_to_rvs.pop(model.rvs_to_values.pop(factor), None)
    del model.rvs_to_transforms[factor]


def _exchange(variables: list[Variable], old: Variable, new: Variable) -> None:
    """Replace an entry of a list of a model, which does not allow to assign to it."""
    place = variables.index(old)
    variables.pop(place)
    variables.insert(place, new)


def rebuilt(outputs: list[Variable], known: Mapping[Variable, Variable]) -> list[Any]:
    """Return graphs with some variables replaced. Nodes that don't depend on these are shared."""
    new = dict(known)
    for node in io_toposort([], outputs):
        if node.outputs[0] not in known and any(x in new for x in node.inputs):
            inputs = [new.get(x, x) for x in node.inputs]
            # Static shapes may differ.
            clone = node.clone_with_new_inputs(inputs, strict=False)
            new |= dict(zip(node.outputs, clone.outputs))
    return [new.get(x, x) for x in outputs]
