"""Cost criterion of the lift in :mod:`~pymc_fastlogp.rewrites.packed_matrices.lift_set_subtensor`.

The lift stores one more array of the size of ``x``, so it pays by the entries on which ``f`` is no longer evaluated.

- If ``f`` is arithmetic, PyTensor would fuse it into the loop that reads the result. The lift then saves nothing, unless a
  costlier function follows that can be lifted next.
- If a reduction or a diagonal follows, the matrix is never stored
  (:mod:`~pymc_fastlogp.rewrites.packed_matrices.sum_of_filled`), as for an LKJ prior.
- If other Ops read the filled array too, it is stored in any case.

``python -m benchmarks.limits`` measures the limits below.
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

# Functions whose cost is negligible in the loop that reads the result.
ARITHMETIC = ops_where(lambda facts: facts.cost <= Cost.DIVISION)

# Up to this size the number of Ops determines the cost, not the number of entries.
FEW_ENTRIES = 1024
# Above this size: the largest share of written entries at which saved function calls are worth another array.
MOST_WRITTEN = 3 / 4
MOST_WRITTEN_BY_ARITHMETIC = 1 / 4


def pays(fgraph: FunctionGraph, node: Apply, operand: TensorVariable, filled: Packed) -> bool:
    """Return whether evaluating ``f`` on the written entries alone saves time."""
    entries = _size(operand)
    if entries <= FEW_ENTRIES or _is_reduced(fgraph, node):
        return True
    written = sum(1 if is_scalar(entry) else entry.where.size for entry in filled.entries)
    if isinstance(node.op.scalar_op, ARITHMETIC):
        is_read_twice = any(client is not node for client, _ in fgraph.clients[operand])
        is_few = written <= MOST_WRITTEN_BY_ARITHMETIC * entries
        return is_few and not is_read_twice and _precedes_costly_function(fgraph, node)
    return written <= MOST_WRITTEN * entries


def _precedes_costly_function(fgraph: FunctionGraph, node: Apply) -> bool:
    """Return whether a function that is not arithmetic can be lifted after this one."""

    def lifted(node: Apply) -> list[Apply]:
        return [reader for reader in _readers(fgraph, node) if isinstance(reader.op, Elemwise)]

    return any(not isinstance(each.op.scalar_op, ARITHMETIC) for each in walk([node], lifted))


def _readers(fgraph: FunctionGraph, node: Apply) -> list[Apply]:
    return [client for client, _ in fgraph.clients[node.outputs[0]]]


def _is_largest(node: Apply, operand: TensorVariable) -> bool:
    """Return whether the other operands are broadcast along an axis, as norms of rows are."""
    return all(x is operand or _is_smaller(x, operand) for x in node.inputs)


def _is_smaller(x: TensorVariable, operand: TensorVariable) -> bool:
    """Return whether ``x`` is known to have fewer entries."""
    return None not in (*x.type.shape, *operand.type.shape) and _size(x) < _size(operand)


def _is_reduced(fgraph: FunctionGraph, node: Apply) -> bool:
    """Return whether a reduction or a diagonal follows after further lifts: both can be computed from the written entries."""

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
