r"""``cholesky(K) @ z``: take its gradient without that of a whole factor.

.. code::

    cholesky(K) @ z  ->  factor_times_vector(K, z)

A latent Gaussian process, and any normal vector that is not centered, is :math:`f = L z` with :math:`K = L L^\top`. Of what is
given for it, :math:`g`, a differentiated factorization makes the matrix :math:`g z^\top` and takes it through a product of matrices and two triangular
solves with as many right-hand sides as there are rows, :math:`\bar K = L^{-\top} \Phi(L^\top g z^\top) L^{-1}` (Murray, 2016, "Differentiation of the
Cholesky decomposition"). :math:`\Phi` is the lower triangle with its diagonal halved. Here

.. math::

    L^\top g z^\top = u z^\top, \qquad u = L^\top g = \bar z,

is of rank one, and its triangle times :math:`L^{-1}` takes running sums of the rows of :math:`L^{-1}` and no product. What remains is the inverse
of a triangle and one product of triangles, :class:`~pymc_fastlogp.ops.RankOnePullback`. The value is computed as before, by the same nodes.

As upstream's, the gradient is that of the lower triangle of ``K``: nothing is assumed of the upper one.
"""

from typing import Any

import pytensor.tensor as pt
from pytensor.compile.builders import SymbolicOp
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.linalg.decomposition.cholesky import cholesky
from pytensor.tensor.math import Dot
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.ops import MAX_ROWS_TILED, RankOnePullback
from pymc_fastlogp.rewrites.linalg.terms_of_covariance import factored_covariance


class FactorTimesVector(SymbolicOp):
    """``cholesky(K) @ z`` of a matrix ``K`` and a matrix ``z`` of one column."""

    inline = True

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph that computes it."""
        covariance, z = inputs
        return [pt.dot(cholesky(covariance), z)]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[TensorVariable]:
        """Return the gradients with respect to the lower triangle of ``K`` and to ``z``."""
        [covariance, z], [given] = inputs, cotangents
        factor = cholesky(covariance)
        u = pt.dot(factor.mT, given)
        return [RankOnePullback()(factor, u[:, 0], z[:, 0]), u]


@node_rewriter([Dot])
def local_factor_times_vector(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``cholesky(K) @ z -> factor_times_vector(K, z)``, where nothing else needs the factor."""
    [factor, z], [out] = node.inputs, node.outputs
    if z.type.shape[1] != 1 or len(fgraph.clients[factor]) > 1:
        return None
    covariance = factored_covariance(fgraph, factor)
    if covariance is None or not _is_known(covariance.type.shape):
        return None
    if {covariance.type.dtype, z.type.dtype} != {"float64"}:
        return None
    result = FactorTimesVector()(covariance, z)
    if not out.type.is_super(result.type):
        return None
    copy_stack_trace(out, result)
    return [result]


def _is_known(shape: tuple[int | None, ...]) -> bool:
    rows, columns = shape
    return rows is not None and rows == columns and rows <= MAX_ROWS_TILED
