"""Add where something is to be added, without collecting it in another array first.

.. code::

    x[i].inc(zeros(n)[k].inc(v))  ->  x[i[k]].inc(v)

for constant ``i`` and ``k``. An ``inc`` adds every entry of its value, however often one position is
named, so adding what was added up and adding the terms are the same, up to round-off.
"""

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import constant
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.writes import positions


@node_rewriter([IncSubtensor, AdvancedIncSubtensor])
def local_inc_of_scattered(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``x[i].inc(zeros(n)[k].inc(v)) -> x[i[k]].inc(v)``."""
    base, value = node.inputs[:2]
    scatter = value.owner
    if node.op.set_instead_of_inc or base.type.ndim != 1 or len(fgraph.clients[value]) > 1:
        return None
    if scatter is None or not isinstance(scatter.op, AdvancedIncSubtensor):
        return None
    if scatter.op.set_instead_of_inc or scatter.op.idx_list != (0,) or value.type.ndim != 1:
        return None
    zeros, v, index = scatter.inputs
    where = positions(node)
    if where is None or not isinstance(index, TensorConstant) or index.type.dtype == "bool":
        return None
    if fill_value(zeros) != 0 or value.type.shape != where.shape or v.type.dtype != base.type.dtype:
        return None
    out = base[constant(where[index.data])].inc(v)
    copy_stack_trace(node.outputs[0], out)
    return [out]
