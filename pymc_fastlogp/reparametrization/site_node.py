"""One node for the arithmetic of a site, with explicit derivatives.

The arithmetic of a site takes about 12 nodes, and its derivatives about 48. Each PyTensor pass visits every node.
A single :class:`~pymc_fastlogp.ops.SiteNode` is expanded only when kernels are built, which shortens compilation.
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
# Function of inputs, outputs and output gradients. It returns the gradients of the first inputs; the other inputs are arrays of sites.
Pullback = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Sequence[Variable]]


def as_node(forward: Forward, pullback: Pullback, *inputs: Any) -> list[Variable]:
    """Apply a function as one node, and return its outputs.

    Parameters
    ----------
    forward : callable
        Function from input variables to outputs.
    pullback : callable
        Function of inputs, outputs and output gradients that returns the gradients of the first inputs. The gradient of an unused output is 0.0.
        The other inputs have no gradient.
    *inputs : Variable
        Inputs of the function.
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
    """Wrap a pullback for PyTensor: handle disconnected gradients and broadcasting, and mark inputs without gradient."""

    def pullback_of_all(inputs: Any, outputs: Any, gradients: Any) -> list[Variable]:
        is_disconnected = [isinstance(x.type, DisconnectedType) for x in gradients]
        known = [0.0 if unused else x for x, unused in zip(gradients, is_disconnected, strict=True)]
        found = list(pullback(inputs, outputs, known))
        fitting = [unbroadcast(x, like) for x, like in zip(found, inputs, strict=False)]
        others = enumerate(inputs[len(found) :], start=len(found))
        fitting += [grad_undefined(None, i, x, "an array of a site") for i, x in others]
        used = {
            *ancestors(
                [x for x, unused in zip(outputs, is_disconnected, strict=True) if not unused]
            )
        }
        pairs = zip(fitting, inputs, strict=True)
        return [d_x if x in used else disconnected_type() for d_x, x in pairs]

    return pullback_of_all


def unbroadcast(x: Any, like: Variable) -> Variable:
    """Sum a gradient over the axes along which ``like`` was broadcast, or broadcast the gradient to the shape of ``like``."""
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
