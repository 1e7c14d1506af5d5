r"""Sum the entries between two positions instead of subtracting cumulative sums.

.. code::

    cumsum(y)[i] - cumsum(y)[j]  ->  zeros(n)[k].inc(y[e])        j <= i constant, n their length

The positions :math:`e` are :math:`j_k + 1, \dots, i_k` for each pair :math:`k`, and :math:`k` is repeated accordingly:

.. math:: \sum_{a \le i_k} y_a - \sum_{a \le j_k} y_a = \sum_{j_k < a \le i_k} y_a

``LKJCholeskyCov`` computes its variances, sums over the rows of a packed triangle, from the left side. There the sums of
earlier rows are added and subtracted again. With standard deviations 1e8 and then 1e-8, the second variance comes out as zero.
Where an entry is not finite, the left side is NaN in each later difference, the right side only in the sums that contain the
entry.

When it applies
---------------
To constant indices or slices of a float vector of known length, with ``j <= i`` in each pair. The entries between all pairs are
at most as many as the vector has.

When it refuses
---------------
Indices computed at run time or beyond the end, matrices, integers, values that are cast.
"""

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import zeros
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import sub
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.provenance import moved_inputs, provenance, slice_if_consecutive
from pymc_fastlogp.rewrites.replacement import replacement


@node_rewriter([sub])
def local_difference_of_cumsum(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``cumsum(y)[i] - cumsum(y)[j] -> zeros[k].inc(y[e])``."""
    [out] = node.outputs
    upper, lower = map(_entries_of_cumsum, node.inputs)
    if upper is None or lower is None or upper[0] is not lower[0]:
        return None
    y, last, first = upper[0], upper[1], lower[1] + 1
    if last.shape != first.shape or (last + 1 < first).any() or y.type.dtype != out.type.dtype:
        return None
    lengths = last + 1 - first
    # A cumulative sum visits each entry once.
    if not 0 < lengths.sum() <= y.type.shape[0]:
        return None
    entries = np.concatenate([np.arange(a, b + 1) for a, b in zip(first, last, strict=True)])
    of_entry = np.repeat(np.arange(last.size), lengths)
    sums = zeros(last.size, dtype=out.type.dtype)[of_entry].inc(y[slice_if_consecutive(entries)])
    return replacement(out, sums)


def _entries_of_cumsum(x: TensorVariable) -> tuple[TensorVariable, np.ndarray] | None:
    """Return ``y`` and ``i`` if ``x`` is ``cumsum(y)[i]`` of a vector of known length."""
    if not isinstance(x.owner_op, Subtensor | AdvancedSubtensor):
        return None
    sums = x.owner.inputs[0]
    if not isinstance(sums.owner_op, CumOp) or sums.owner.op.mode != "add" or x.type.ndim != 1:
        return None
    # Applied again: the index may have become constant since, and its length known.
    read = x.owner.op(*x.owner.inputs)
    [y], found = sums.owner.inputs, provenance(read)
    if found is None or not moved_inputs(read) or y.type.ndim != 1:
        return None
    # An index beyond the end, which raises when called, makes `read` a separate leaf.
    if [*found.leaves] != [sums]:
        return None
    return (y, found.codes - 1) if y.type.dtype in float_dtypes else None
