r"""Sum a filled matrix by adding up the vectors that it was filled from.

.. code::

    zeros((n, m))[i, j].set(v).sum(axis=1)               ->  zeros(n)[i].inc(v)
    zeros((n, n))[i, j].set(v)[k, k].set(d).sum(axis=1)  ->  d[i].inc(v)           k == arange(n)
    zeros((n, m))[i, j].set(v).sum()                     ->  v.sum()
    zeros((b, n, m))[:, i, j].set(v).sum(axis=2)         ->  zeros((b, n))[k, l].inc(ravel(v))

Each entry of the matrix is zero or one entry of the vectors, and none of them stands twice, so
:math:`\sum_c A_{rc} = \sum_{k:\, i_k = r} v_k`. The matrix, half of which is empty if it is a triangle, is not
made, and the gradient of the sum is one gather.

The terms are added in another order, which moves the result by round-off.
"""

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import zeros
from pytensor.tensor.math import Sum, variadic_add
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.writes import is_set
from pymc_fastlogp.rewrites.packed_matrices.lift_cost import MOST_WRITTEN
from pymc_fastlogp.rewrites.packed_matrices.packed_array import Packed, array_of, packed, value_of


@node_rewriter([Sum])
def local_sum_of_filled(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``zeros[i, j].set(v).sum(axis=1) -> zeros[i].inc(v)``."""
    op, [matrix], [out] = node.op, node.inputs, node.outputs
    # An `inc` accumulates in the type of its result.
    dtypes = {matrix.type.dtype, out.type.dtype, op.acc_dtype or out.type.dtype}
    if not is_set(matrix) or len(dtypes) > 1 or out.type.dtype not in float_dtypes:
        return None
    filled = packed(matrix)
    if filled is None or not filled.entries or fill_value(filled.fill) != 0:
        return None
    if op.axis is None or len(op.axis) == matrix.type.ndim:
        total = variadic_add(*(array_of(entry, entry.where.size).sum() for entry in filled.entries))
    elif filled.n_written <= MOST_WRITTEN * np.prod(filled.shape):
        kept = [axis for axis in range(matrix.type.ndim) if axis not in op.axis]
        total = _sums_along(filled, kept)
    else:
        # Adding entry by entry is not surely less work than to fill the matrix and sum it.
        return None
    copy_stack_trace(out, total)
    return [total]


def _sums_along(filled: Packed, kept: list[int]) -> TensorVariable:
    """Return the sum of the entries for each position on the axes that are kept."""
    lengths = [filled.shape[axis] for axis in kept]
    everywhere = np.indices(lengths).reshape(len(kept), -1)
    whole, scattered = [], []
    for entry in filled.entries:
        index = [np.unravel_index(entry.where, filled.shape)[axis] for axis in kept]
        if np.array_equal(index, everywhere):
            whole.append(array_of(entry, *lengths))
        else:
            scattered.append((tuple(index), value_of(entry)))
    sums = variadic_add(*whole) if whole else zeros(lengths, dtype=filled.fill.type.dtype)
    for places, value in scattered:
        sums = sums[places].inc(value)
    return sums
