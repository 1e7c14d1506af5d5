"""Compose two constant indices in place of gathering twice.

.. code::

    x[i][j]        ->  x[i[j]]              i, j constant
    x[:, i, k][j]  ->  x[:, i[j], k[j]]     if j indexes the axis of i and k

Nested groups are often written with two indices: ``a[county_of_site]`` has one effect per site, and ``[site]`` gives one per
row. With the composed index the rows read the table itself. Rows that are sorted by county then have longer runs of equal
indices than rows that are sorted by site, and the gradient is added up once, without a vector per site.

Values are unchanged, and gradients are added in another order, so they differ by round-off. An index out of range stays, so
that PyTensor raises the ``IndexError``.

When it applies
---------------
To integer index vectors ``i`` that are constant and longer than the axis of ``x`` that they index. The index ``j`` may have
any number of axes.

When it refuses
---------------
- Indices that are computed or data that may change, boolean masks.
- An index ``i`` that selects some of the entries: functions of ``x`` are then computed for the selected entries alone.
"""

from math import prod

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.gathers import Gather, parse_gather
from pymc_fastlogp.rewrites.replacement import replacement


@node_rewriter([AdvancedSubtensor])
def local_gather_of_gather(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``x[i][j] -> x[i[j]]``."""
    inner, [out] = node.inputs[0], node.outputs
    if not isinstance(inner.owner_op, AdvancedSubtensor):
        return None
    first, second = parse_gather(inner.owner), parse_gather(node)
    table = inner.owner.inputs[0]
    if first is None or second is None or not _repeats_entries(first, table):
        return None
    if first.ndim != 1 or [*second.arrays] != [first.first]:
        return None
    [rows] = second.arrays.values()
    composed = (array[rows] for array in first.arrays.values())
    return replacement(out, table[(*[slice(None)] * first.first, *composed)])


def _repeats_entries(gather: Gather, table: TensorVariable) -> bool:
    """Return whether a gather from axes of known length has more entries than the axes."""
    lengths = [table.type.shape[axis] for axis in gather.arrays]
    return None not in lengths and gather.arrays[gather.first].size > prod(lengths)
