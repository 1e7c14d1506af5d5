"""Cost criterion of the lift in :mod:`~pymc_fastlogp.rewrites.packed_matrices.lift_set_subtensor`.

The lift stores an array of the size of ``x`` where one was stored before, so it pays by the
entries on which ``f`` is not evaluated any more. Where ``f`` is arithmetic, PyTensor would have
fused it into the loop that reads the result, and there is nothing to save, unless a costlier
function follows that can be lifted next, or a reduction or a diagonal, which can be taken of what
was written (:mod:`~pymc_fastlogp.rewrites.packed_matrices.sum_of_filled`): an LKJ prior then never has a matrix.
Where other Ops read the filled array as well, it has to be stored all the same. ``benchmarks/lift_cost.py``
measures the cases, and the limits below follow from it.
"""

import math

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import walk
from pytensor.tensor.basic import ExtractDiag
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.scalar_facts import Cost, ops_where
from pymc_fastlogp.rewrites.packed_matrices.packed_array import Packed, is_scalar

# Next to free in the loop that reads the result.
ARITHMETIC = ops_where(lambda facts: facts.cost <= Cost.DIVISION)

# Up to so many entries the number of Ops counts, and not how many entries each of them visits.
FEW_ENTRIES = 1024
# What is written of more entries, at most, for the functions that are spared to be worth another array, and arithmetic.
MOST_WRITTEN = 3 / 4
MOST_WRITTEN_BY_ARITHMETIC = 1 / 4


def pays(fgraph: FunctionGraph, node: Apply, operand: TensorVariable, filled: Packed) -> bool:
    """Return whether evaluating ``f`` on what was written, and not on all, is worth the change."""
    entries = _size(operand)
    if entries <= FEW_ENTRIES or _is_reduced(fgraph, node):
        return True
    written = sum(1 if is_scalar(entry) else entry.where.size for entry in filled.entries)
    if isinstance(node.op.scalar_op, ARITHMETIC):
        is_read_twice = any(client is not node for client, _ in fgraph.clients[operand])
        is_few = written <= MOST_WRITTEN_BY_ARITHMETIC * entries
        return is_few and not is_read_twice and _leads_to_a_costly(fgraph, node)
    return written <= MOST_WRITTEN * entries


def _leads_to_a_costly(fgraph: FunctionGraph, node: Apply) -> bool:
    """Return whether a function that is not arithmetic can be lifted after this arithmetic."""

    def lifted(node: Apply) -> list[Apply]:
        return [reader for reader in _readers(fgraph, node) if isinstance(reader.op, Elemwise)]

    return any(not isinstance(each.op.scalar_op, ARITHMETIC) for each in walk([node], lifted))


def _readers(fgraph: FunctionGraph, node: Apply) -> list[Apply]:
    return [client for client, _ in fgraph.clients[node.outputs[0]]]


def _is_largest(node: Apply, operand: TensorVariable) -> bool:
    """Return whether the other operands are repeated along an axis, as norms of rows are."""
    return all(x is operand or _is_smaller(x, operand) for x in node.inputs)


def _is_smaller(x: TensorVariable, operand: TensorVariable) -> bool:
    """Return whether ``x`` is known to have fewer entries."""
    return None not in (*x.type.shape, *operand.type.shape) and _size(x) < _size(operand)


def _is_reduced(fgraph: FunctionGraph, node: Apply) -> bool:
    """Return whether a reduction or a diagonal follows, to which other lifts lead: both can be taken of what was written."""

    def lifted(node: Apply) -> list[Apply]:
        readers = _readers(fgraph, node)
        elementwise = [reader for reader in readers if isinstance(reader.op, Elemwise)]
        return [reader for reader in elementwise if _is_largest(reader, node.outputs[0])]

    return any(
        isinstance(reader.op, CAReduce | ExtractDiag)
        for each in walk([node], lifted)
        for reader in _readers(fgraph, each)
    )


def _size(x: TensorVariable) -> int:
    return math.prod(x.type.shape)
