"""Keep ``gammaln(a + k) - gammaln(a)`` in one term where row compaction would sum the two terms apart.

.. code::

    gammaln(a[g] + k) - gammaln(a[g])  ->  difference(a[g], k, gammaln(a)[g])

For large :math:`a` the two terms cancel. :mod:`Row compaction <pymc_fastlogp.rewrites.rows.compact.compact_rows>` would sum the
second term by group and the first by row. The rounding of both sums grows with the number of rows, and few digits of their
difference remain. As one Op the terms are subtracted row by row, as in PyTensor, and so are the terms of the derivative,
``psi(a + k) - psi(a)``. ``gammaln(a)`` and ``psi(a)`` are still computed by group. Tests bound the error by four times
PyTensor's.

When it applies
---------------
Before the gradient and before rows are compacted, to two terms of a sum with opposite signs that
:mod:`~pymc_fastlogp.rewrites.loggamma.rising_factorial` leaves: ``k`` is a parameter, mutable data, negative, between 0 and
1/2, or in single precision. ``a`` is a scalar, or has at most half as many distinct entries as there are rows.

When it refuses
---------------
- One ``a`` per row: terms are not summed apart.
- Both terms read the same columns, as in ``gammaln(a[g] + b[g]) - gammaln(a[g])``: they are compacted together.
- Unknown lengths.
"""

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.math import gammaln
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.affine import as_variable
from pymc_fastlogp.ops import gamma_difference
from pymc_fastlogp.rewrites.loggamma.gamma_pairs import (
    Pair,
    as_gathered,
    of_entries,
    with_pairs_replaced,
)
from pymc_fastlogp.rewrites.loggamma.rising_factorial import is_rising
from pymc_fastlogp.rewrites.rows.view.columns import reads_of


@node_rewriter([gammaln])
def local_gamma_difference(fgraph: FunctionGraph, node: Apply) -> dict[Variable, Variable] | None:
    """Merge ``gammaln(a + k) - gammaln(a)`` within a sum into one term."""

    def accepts(pair: Pair, out: TensorVariable) -> bool:
        return (
            out.type.dtype in float_dtypes
            and pair.a.type.dtype == pair.high.x.type.dtype == out.type.dtype
            and None not in out.type.shape
            and not is_rising(pair)
            and _has_more_columns(fgraph, pair, out)
        )

    return with_pairs_replaced(fgraph, node, accepts, _difference)


def _has_more_columns(fgraph: FunctionGraph, pair: Pair, out: TensorVariable) -> bool:
    """Return whether ``a + k`` depends on a column that ``a`` does not depend on, so that compaction sums both apart."""
    axes = [axis for axis, length in enumerate(out.type.shape) if length != 1]
    where = {axis: k for k, axis in enumerate(axes)}
    reads = reads_of(fgraph, tuple(out.type.shape[axis] for axis in axes))
    return not reads.of(pair.high.x, where).columns <= reads.of(pair.a, where).columns


def _difference(pair: Pair) -> TensorVariable:
    a = as_gathered(pair.a)
    k = as_variable(pair.k, a.type.ndim, a.type.dtype)
    return gamma_difference(a, k, of_entries(gammaln, a))
