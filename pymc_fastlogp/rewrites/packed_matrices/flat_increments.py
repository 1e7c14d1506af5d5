"""Add up the increments of one tensor in one sum.

.. code::

    ((x + inc(0, c)) + inc(0, d)) + inc(0, e)  ->  x + inc(0, c) + inc(0, d) + inc(0, e)

The gradient of a table that many likelihoods read is a sum of that many increments, two at a time. PyTensor's ``local_IncSubtensor_serialize`` makes
a chain of increments of it. Of sums within sums it takes what is there to the next sum outward one by one, so that of :math:`n` increments it makes
:math:`n^2` nodes; of one sum it makes the chain at once. The chain is the same: increments are in the same order, and they start from what
is no increment. Several terms that are none, such as the gradient of a likelihood that reads the whole table, are added up first, as PyTensor adds
them: what comes after an increment stands before what has been added up by then,

.. code::

    (((x + y) + inc(0, c)) + z) + inc(0, d)  ->  (z + (x + y)) + inc(0, c) + inc(0, d)

Where increments are of other values than zeros, those would come between, and the sum is left alone, as it is where a later term is itself a
sum with increments, of which PyTensor makes a chain that moves as one.
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

# Two increments, and what they start from, PyTensor puts in a row at once.
FEWEST = 3


class FlatIncrements(GraphRewriter):
    """Make one sum of sums of increments, see the module's docstring."""

    def apply(self, fgraph: FunctionGraph) -> None:
        """Replace each sum that is not part of another one."""
        nodes = [node for node in fgraph.toposort() if is_elemwise(node.op, ps.Add)]
        for out in (node.outputs[0] for node in nodes):
            if any(is_elemwise(client.op, ps.Add) for client, _ in fgraph.clients[out]):
                continue
            total = _one_sum(fgraph, out)
            if total is None:
                continue
            copy_stack_trace(out, total)
            if out.type.is_super(total.type):
                fgraph.replace_all_validate([(out, total)], reason=NAME)


def _one_sum(fgraph: FunctionGraph, out: TensorVariable) -> TensorVariable | None:
    """Return what increments start from and the increments in one sum, None where there are few."""
    levels = _levels(fgraph, out)
    if len(levels) == 1:
        return None
    start: list[TensorVariable] = []
    increments: list[TensorVariable] = []
    for terms in levels:
        if any(_has_increments(fgraph, x) for x in terms):
            return None
        moves = [_is_increment(fgraph, x, out) for x in terms]
        others = [x for x, move in zip(terms, moves, strict=True) if not move]
        if others:
            # A chain of increments moves behind what is no increment, and what it starts from with it.
            parts = [*others, *start] if increments else [*start, *others]
            start = [add(*parts)] if len(parts) > 1 else parts
        increments += compress(terms, moves)
    if len(increments) < FEWEST or not all(map(_is_of_zeros, increments)):
        return None
    return add(*start, *increments)


def _levels(fgraph: FunctionGraph, out: TensorVariable) -> list[list[TensorVariable]]:
    """Return what each sum adds, the innermost first, through first terms that are sums of the same type and that nothing else reads."""
    first, *others = out.owner.inputs
    levels = []
    while is_made_by(first, ps.Add) and first.type == out.type and len(fgraph.clients[first]) == 1:
        levels.append(others)
        first, *others = first.owner.inputs
    return [[first, *others], *levels[::-1]]


def _is_increment(fgraph: FunctionGraph, x: TensorVariable, out: TensorVariable) -> bool:
    """Return whether PyTensor puts a term into the chain."""
    is_inc = is_set(x) and not x.owner.op.set_instead_of_inc
    return is_inc and len(fgraph.clients[x]) == 1 and x.type.is_super(out.type)


def _has_increments(fgraph: FunctionGraph, out: TensorVariable) -> bool:
    """Return whether a term is itself a sum with increments, of which PyTensor makes a chain that moves as one."""
    waiting = [out]
    while waiting:
        x = waiting.pop()
        if is_made_by(x, ps.Add) and len(fgraph.clients[x]) == 1:
            if any(map(is_set, x.owner.inputs)):
                return True
            waiting += x.owner.inputs
    return False


def _is_of_zeros(increment: TensorVariable) -> bool:
    value = fill_value(increment.owner.inputs[0])
    return value is not None and value == 0
