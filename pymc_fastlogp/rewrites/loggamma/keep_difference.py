r"""``gammaln(a + k) - gammaln(a)`` stays one term where its rows do not read the same.

.. code::

    gammaln(a[g] + k) - gammaln(a[g])  ->  difference(a[g], k, gammaln(a)[g])

For large :math:`a` the two cancel. Where :mod:`~pymc_fastlogp.rewrites.loggamma.rising_factorial` does not rewrite them, ``k`` not being constant or in single
precision, rows that are :mod:`compacted <pymc_fastlogp.rewrites.rows.compact.compact_rows>` would have the second summed by group, and
the first by row: two sums whose rounding grows with the number of rows, and of which few digits are left. As one term they are
subtracted row by row, as upstream does it, and so are the two of the derivative. What ``gammaln`` and ``psi`` of ``a`` are is still computed by group.
"""

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.math import gammaln
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.rewrites.loggamma.gamma_difference import gamma_difference
from pymc_fastlogp.rewrites.loggamma.gamma_pairs import (
    Pair,
    as_gathered,
    of_entries,
    with_pairs_replaced,
)
from pymc_fastlogp.rewrites.loggamma.rising_factorial import is_rising
from pymc_fastlogp.rewrites.rows.compact.affine import as_variable
from pymc_fastlogp.rewrites.rows.view.columns import reads_of


@node_rewriter([gammaln])
def local_gamma_difference(fgraph: FunctionGraph, node: Apply) -> dict[Variable, Variable] | None:
    """Make one term of ``gammaln(a + k) - gammaln(a)`` within a sum."""

    def accepts(pair: Pair, out: TensorVariable) -> bool:
        return (
            out.type.dtype in float_dtypes
            and pair.a.type.dtype == pair.high.x.type.dtype == out.type.dtype
            and None not in out.type.shape
            and not is_rising(pair)
            and _reads_more(fgraph, pair, out)
        )

    return with_pairs_replaced(fgraph, node, accepts, _difference)


def _reads_more(fgraph: FunctionGraph, pair: Pair, out: TensorVariable) -> bool:
    """Return whether a row reads more for ``a + k`` than for ``a``, so that both would be summed apart."""
    axes = [axis for axis, length in enumerate(out.type.shape) if length != 1]
    where = {axis: k for k, axis in enumerate(axes)}
    reads = reads_of(fgraph, tuple(out.type.shape[axis] for axis in axes))
    return not reads.of(pair.high.x, where).columns <= reads.of(pair.a, where).columns


def _difference(pair: Pair) -> TensorVariable:
    a = as_gathered(pair.a)
    k = as_variable(pair.k, a.type.ndim, a.type.dtype)
    return gamma_difference(a, k, of_entries(gammaln, a))
