"""Checks over rows whose inputs are computed at each row anyway.

Such a check costs next to nothing where it stands: over distinct rows it would compute again, for these, what the density computes for all. The density
is compacted before its checks, so that what it still reads by row is known when they are looked at.
"""

from collections.abc import Iterator

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import walk
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.math import All
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.gathers import SELECTIONS
from pymc_fastlogp.rewrites.rows.view.columns import is_cheap


def is_computed_anyway(fgraph: FunctionGraph, check: Apply) -> bool:
    """Return whether all that is costly in the rows of a check has other readers than checks."""
    costly = list(_costly(check.inputs[0]))
    return bool(costly) and not any(_is_for_checks_alone(fgraph, x) for x in costly)


def _costly(x: TensorVariable) -> Iterator[TensorVariable]:
    """Yield what is computed with more than arithmetic of the entries that ``x`` is computed of, in each row."""

    def operands(x: TensorVariable) -> list[TensorVariable]:
        if x.owner is None or isinstance(x.owner.op, AdvancedSubtensor):  # gathered rows of a table
            return []
        return x.owner.inputs if is_cheap(x) and _is_by_row(x.owner) else []

    return (y for y in walk([x], operands) if y.owner is not None and not is_cheap(y))


def _is_for_checks_alone(fgraph: FunctionGraph, x: TensorVariable) -> bool:
    """Return whether all that reads ``x``, and what is computed of it row by row, ends in checks."""

    def readers(x: TensorVariable) -> list[Apply]:
        return [node for node, _ in fgraph.clients[x]]

    def further(node: Apply) -> list[Apply]:
        return readers(node.outputs[0]) if _is_by_row(node) else []

    ends = (node for node in walk(readers(x), further) if not _is_by_row(node))
    return all(isinstance(node.op, All) for node in ends)


def _is_by_row(node: Apply) -> bool:
    """Return whether a node does not reduce all rows to one number."""
    is_reduction = isinstance(node.op, CAReduce) and node.outputs[0].type.ndim > 0
    return is_reduction or isinstance(node.op, (Elemwise, Join, *SELECTIONS))
