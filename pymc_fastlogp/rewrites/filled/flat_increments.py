"""Add up the increments of one tensor in one sum.

.. code::

    ((x + inc(0, c)) + inc(0, d)) + inc(0, e)  ->  x + inc(0, c) + inc(0, d) + inc(0, e)

The gradient of a table that many likelihoods read is a sum of that many increments, two at a time. PyTensor's ``local_IncSubtensor_serialize`` makes
a chain of increments of it. Of sums within sums it takes what is there to the next sum outward one by one, so that of :math:`n` increments it makes
:math:`n^2` nodes; of one sum it makes the chain at once. The chain is the same: increments are in the same order, and they start from what
is no increment. Where more than one term is none, the order in which those are added could change, and such a sum is left alone, as are sums
from the right, of which PyTensor makes a chain in another order.
"""

import pytensor.scalar as ps
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter, copy_stack_trace
from pytensor.tensor.math import add
from pytensor.tensor.variable import TensorVariable

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
            terms = _terms(fgraph, out)
            increments = [x for x in terms if _is_increment(fgraph, x)]
            is_nested = len(terms) > len(out.owner.inputs)
            if is_nested and len(increments) >= max(FEWEST, len(terms) - 1):
                total = add(*terms)
                copy_stack_trace(out, total)
                if out.type.is_super(total.type):
                    fgraph.replace_all_validate([(out, total)], reason=NAME)


def _terms(fgraph: FunctionGraph, out: TensorVariable) -> list[TensorVariable]:
    """Return what is added up, in order, through first terms that are sums of the same type and that nothing else reads."""
    first, *others = out.owner.inputs
    last_first = others[::-1]
    while is_made_by(first, ps.Add) and first.type == out.type and len(fgraph.clients[first]) == 1:
        first, *others = first.owner.inputs
        last_first += others[::-1]
    return [first, *last_first[::-1]]


def _is_increment(fgraph: FunctionGraph, x: TensorVariable) -> bool:
    """Whether PyTensor puts a term into the chain."""
    return is_set(x) and not x.owner.op.set_instead_of_inc and len(fgraph.clients[x]) == 1
