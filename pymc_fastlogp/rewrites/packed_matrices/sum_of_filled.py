r"""Sum a filled matrix by adding up the vectors that filled it.

.. code::

    zeros((n, m))[i, j].set(v).sum(axis=1)               ->  zeros(n)[i].inc(v)
    zeros((n, n))[i, j].set(v)[k, k].set(d).sum(axis=1)  ->  d[i].inc(v)           k == arange(n)
    zeros((n, m))[i, j].set(v).sum()                     ->  v.sum()
    zeros((b, n, m))[:, i, j].set(v).sum(axis=2)         ->  zeros((b, n))[k, l].inc(ravel(v))

Each entry of the matrix is zero or one entry of the vectors, at one position, so
:math:`\sum_c A_{rc} = \sum_{k:\, i_k = r} v_k`. The matrix is not stored, and the gradient of the sum is one gather. The row
norms of an ``LKJCorr`` triangle are such sums. The order of additions changes, so results differ by round-off.

When it applies
---------------
To a sum over some or all axes of an array of zeros, into which vectors or scalars were set at constant positions. The shape is
known and has at most 100 000 entries. An ``inc`` into zeros counts as a set.

When it refuses
---------------
- Indices computed at run time, duplicate indices, another fill than zero.
- Sets that cast, sums accumulated in another dtype, integers.
- A sum along one axis where more than three quarters of the entries are set: a vectorized sum is as fast.
"""

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import zeros
from pytensor.tensor.math import Sum, variadic_add
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.writes import is_set
from pymc_fastlogp.rewrites.packed_matrices.lift_cost import MOST_WRITTEN
from pymc_fastlogp.rewrites.packed_matrices.packed_array import Packed, array_of, packed, value_of
from pymc_fastlogp.rewrites.replacement import replacement


@node_rewriter([Sum])
def local_sum_of_filled(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``zeros[i, j].set(v).sum(axis=1) -> zeros[i].inc(v)``."""
    op, [matrix], [out] = node.op, node.inputs, node.outputs
    # An `inc` accumulates in the dtype of its result.
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
        # Scattered additions may take longer than filling the matrix and summing it.
        return None
    return replacement(out, total)


def _sums_along(filled: Packed, kept: list[int]) -> TensorVariable:
    """Return the sums of the entries for each position along the kept axes."""
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
