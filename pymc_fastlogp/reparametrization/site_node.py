"""Arithmetic of sites as one node with its derivatives spelled out, which the passes of PyTensor do not look into until it is compiled.

What a site does to an effect takes a dozen nodes, and their derivatives four dozen. PyTensor looks at each of them in each round of each of its passes; as
one node they take a third of the time to compile.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type, grad_undefined
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.graph.type import Type

from pymc_fastlogp.ops import SiteNode

Forward = Callable[..., Sequence[Variable]]
# From inputs, outputs and the gradients of outputs to the gradients of the first inputs; the others are numbers of sites.
Pullback = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Sequence[Variable]]


def as_node(forward: Forward, pullback: Pullback, *inputs: Any) -> list[Variable]:
    """Return the outputs of a function as those of one node.

    Parameters
    ----------
    forward : callable
        From variables to outputs.
    pullback : callable
        From inputs, outputs and gradients of outputs, 0.0 where nothing depends on one, to the gradients of the first inputs. All others have none.
    *inputs : Variable
        What the function is of.
    """
    variables = [pt.as_tensor(x).astype("float64") for x in inputs]
    op = _op(forward, pullback, tuple(x.type for x in variables))
    return op(*variables, return_list=True)


@cache
def _op(forward: Forward, pullback: Pullback, types: tuple[Type, ...]) -> SiteNode:
    inputs = [type_() for type_ in types]
    return SiteNode(inputs, list(forward(*inputs)), pullback=_pytensor_pullback(pullback))


@cache
def _pytensor_pullback(pullback: Pullback) -> Callable[..., list[Variable]]:
    """Return a pullback as PyTensor calls it."""

    def of_all(inputs: Any, outputs: Any, gradients: Any) -> list[Variable]:
        is_apart = [isinstance(x.type, DisconnectedType) for x in gradients]
        known = [0.0 if apart else x for x, apart in zip(gradients, is_apart, strict=True)]
        found = list(pullback(inputs, outputs, known))
        fitting = [unbroadcast(x, like) for x, like in zip(found, inputs, strict=False)]
        others = enumerate(inputs[len(found) :], start=len(found))
        fitting += [grad_undefined(None, i, x, "a number of a site") for i, x in others]
        used = {*ancestors([x for x, apart in zip(outputs, is_apart, strict=True) if not apart])}
        pairs = zip(fitting, inputs, strict=True)
        return [of_x if x in used else disconnected_type() for of_x, x in pairs]

    return of_all


def unbroadcast(x: Any, like: Variable) -> Variable:
    """Return a variable summed over the axes that another one does not have, or of which it has one entry; one that has less is filled to its shape."""
    x = pt.as_tensor(x)
    if x.type.ndim > like.type.ndim:
        x = x.sum(tuple(range(x.type.ndim - like.type.ndim)))
    is_short = x.type.ndim < like.type.ndim
    if is_short or any(
        has_one and not is_one
        for has_one, is_one in zip(x.type.broadcastable, like.type.broadcastable, strict=True)
    ):
        x = x + pt.zeros_like(like)
    pairs = zip(x.type.broadcastable, like.type.broadcastable, strict=True)
    axes = [i for i, (has_one, is_one) in enumerate(pairs) if is_one and not has_one]
    return x.sum(axes, keepdims=True) if axes else x
