"""Flatten nested sums of increments of one tensor into one sum.

.. code::

    ((x + inc(0, c)) + inc(0, d)) + inc(0, e)        ->  x + inc(0, c) + inc(0, d) + inc(0, e)
    (((x + y) + inc(0, c)) + z) + inc(0, d)          ->  (z + (x + y)) + inc(0, c) + inc(0, d)

The gradient of a table that :math:`n` likelihoods read is a nested sum of :math:`n` increments. PyTensor's
``local_IncSubtensor_serialize`` makes a chain of increments. For nested sums PyTensor moves increments outward one at a time,
which creates :math:`O(n^2)` nodes. For one flat sum it creates the chain at once.

The resulting chain has the increments in the same order. Other terms, such as the gradient of a likelihood that reads the whole
table, are added first, in PyTensor's order. This is a separate pass before PyTensor's, in every mode but FAST_COMPILE.

When it applies
---------------
To a sum whose first term is a sum, to any depth, with at least three increments.

When it refuses
---------------
- An inner sum with another reader, or of another type.
- Increments of other values than zeros, whose order would change.
- A later term that is itself a sum with increments: PyTensor moves its chain as a whole.
"""

from itertools import compress

import pytensor.scalar as ps
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter, copy_stack_trace
from pytensor.tensor.math import add
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import is_elemwise, is_made_by
from pymc_fastlogp.analysis.writes import is_set

NAME = "fastlogp_flat_increments"

# PyTensor chains two increments in one step.
MIN_INCREMENTS = 3


class FlatIncrements(GraphRewriter):
    """Flatten sums of increments, see the module's docstring."""

    def apply(self, fgraph: FunctionGraph) -> None:
        """Replace each outermost sum."""
        nodes = [node for node in fgraph.toposort() if is_elemwise(node.op, ps.Add)]
        for out in (node.outputs[0] for node in nodes):
            if any(is_elemwise(client.op, ps.Add) for client, _ in fgraph.clients[out]):
                continue
            total = _flat_sum(fgraph, out)
            if total is None:
                continue
            copy_stack_trace(out, total)
            if out.type.is_super(total.type):
                fgraph.replace_all_validate([(out, total)], reason=NAME)


def _flat_sum(fgraph: FunctionGraph, out: TensorVariable) -> TensorVariable | None:
    """Return a nested sum as one sum of other terms and increments; None if it has few increments or cannot be flattened."""
    levels = _levels(fgraph, out)
    if len(levels) == 1:
        return None
    start: list[TensorVariable] = []
    increments: list[TensorVariable] = []
    for terms in levels:
        if any(_has_increments(fgraph, x) for x in terms):
            return None
        is_increment = [_is_increment(fgraph, x, out) for x in terms]
        others = [x for x, is_inc in zip(terms, is_increment, strict=True) if not is_inc]
        if others:
            # PyTensor moves a chain, with the term that it starts from, behind the terms that are no increments.
            parts = [*others, *start] if increments else [*start, *others]
            start = [add(*parts)] if len(parts) > 1 else parts
        increments += compress(terms, is_increment)
    if len(increments) < MIN_INCREMENTS or not all(map(_is_of_zeros, increments)):
        return None
    return add(*start, *increments)


def _levels(fgraph: FunctionGraph, out: TensorVariable) -> list[list[TensorVariable]]:
    """Return the terms of each nested sum, innermost first. A first term is nested if it is a sum of the same type without other readers."""
    first, *others = out.owner.inputs
    levels = []
    while is_made_by(first, ps.Add) and first.type == out.type and len(fgraph.clients[first]) == 1:
        levels.append(others)
        first, *others = first.owner.inputs
    return [[first, *others], *levels[::-1]]


def _is_increment(fgraph: FunctionGraph, x: TensorVariable, out: TensorVariable) -> bool:
    """Return whether PyTensor takes a term into the chain."""
    is_inc = is_set(x) and not x.owner.op.set_instead_of_inc
    return is_inc and len(fgraph.clients[x]) == 1 and x.type.is_super(out.type)


def _has_increments(fgraph: FunctionGraph, out: TensorVariable) -> bool:
    """Return whether a term is itself a sum with increments, whose chain PyTensor moves as a whole."""
    pending = [out]
    while pending:
        x = pending.pop()
        if is_made_by(x, ps.Add) and len(fgraph.clients[x]) == 1:
            if any(map(is_set, x.owner.inputs)):
                return True
            pending += x.owner.inputs
    return False


def _is_of_zeros(increment: TensorVariable) -> bool:
    value = fill_value(increment.owner.inputs[0])
    return value is not None and value == 0
