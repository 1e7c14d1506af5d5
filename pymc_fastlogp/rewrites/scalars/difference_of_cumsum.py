r"""``cumsum(y)[i] - cumsum(y)[j] -> zeros[k].inc(y[e])``: sum the entries between two positions.

.. code::

    cumsum(y)[i] - cumsum(y)[j]  ->  zeros(n)[k].inc(y[e])        j <= i constant, n their length

with :math:`e` the positions :math:`j_k + 1, \dots, i_k` for one :math:`k` after the other, and :math:`k` repeated as often:

.. math:: \sum_{a \le i_k} y_a - \sum_{a \le j_k} y_a = \sum_{j_k < a \le i_k} y_a

``LKJCholeskyCov`` gets the variances, which are sums over the rows of a packed triangle, from the left side. There
the first rows' sums are added to each of the others and subtracted again, by which the variance of a small
standard deviation after a large one is lost, and can even come out zero. Neither happens on the right.
Where an entry is not finite, the left side is nan in each difference after it, the right only in the
sums that have it.
"""

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import zeros
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import sub
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.provenance import moved_inputs, provenance, slice_if_consecutive


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
    copy_stack_trace(out, sums)
    return [sums] if out.type.is_super(sums.type) else None


def _entries_of_cumsum(x: TensorVariable) -> tuple[TensorVariable, np.ndarray] | None:
    """Return ``y`` and ``i`` if ``x`` is ``cumsum(y)[i]``, of a vector of known length."""
    if not isinstance(x.owner_op, Subtensor | AdvancedSubtensor):
        return None
    sums = x.owner.inputs[0]
    if not isinstance(sums.owner_op, CumOp) or sums.owner.op.mode != "add" or x.type.ndim != 1:
        return None
    # Read again: the index may have become a constant since, and its length known.
    read = x.owner.op(*x.owner.inputs)
    [y], found = sums.owner.inputs, provenance(read)
    if found is None or not moved_inputs(read) or y.type.ndim != 1:
        return None
    # What reads beyond the end, and raises when it is called, is an entry of itself.
    if [*found.leaves] != [sums]:
        return None
    return (y, found.codes - 1) if y.type.dtype in float_dtypes else None
