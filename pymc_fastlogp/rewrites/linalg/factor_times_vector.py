r"""Differentiate ``cholesky(K) @ z`` by a rank-one formula, not through the whole factorization.

.. code::

    cholesky(K) @ z  ->  factor_times_vector(K, z)

A latent Gaussian process (``pm.gp.Latent``) and any noncentered multivariate normal is :math:`f = L z` with
:math:`K = L L^\top`. With :math:`g` the gradient of :math:`f`, and :math:`\Phi` the lower triangle with its diagonal halved,

.. math:: \bar K = L^{-\top} \Phi(L^\top g z^\top) L^{-1} .

PyTensor evaluates this with one matrix product and two triangular solves with :math:`n` right-hand sides. But

.. math:: L^\top g z^\top = u z^\top, \qquad u = L^\top g = \bar z,

has rank one. Its lower triangle times :math:`L^{-1}` is a running sum over the rows of :math:`L^{-1}`. One inverse of a
triangle and one product of triangles remain, :class:`~pymc_fastlogp.ops.RankOnePullback`. The value is computed by the same
nodes.

The gradient is taken with respect to the lower triangle of ``K``, as PyTensor does. Where ``K`` has no factor, all results are
NaN. Tests bound the error by four times PyTensor's, against 60 digits.

When it applies
---------------
Before the gradient is taken, to the lower factor of a float64 matrix times one vector. The matrix has 33 to 400 rows, a known
number. The factor has no other reader.

When it refuses
---------------
- Fewer rows, for which kernels have straight-line code; more rows or an unknown number.
- A matrix on the right, an upper or transposed factor.
- A factor with another reader, whose full gradient is needed, or that another rule computes without factorizing.

References
----------
I. Murray, "Differentiation of the Cholesky decomposition", 2016.
"""

from typing import Any

import pytensor.tensor as pt
from pytensor.compile.builders import SymbolicOp
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.linalg.decomposition.cholesky import cholesky
from pytensor.tensor.math import Dot
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.ops import RankOnePullback
from pymc_fastlogp.rewrites.linalg.terms_of_covariance import factored_covariance
from pymc_fastlogp.rewrites.replacement import replacement

# Kernels have a function for the gradient up to this size.
MAX_ROWS = 400


class FactorTimesVector(SymbolicOp):
    """``cholesky(K) @ z`` of a matrix ``K`` and a matrix ``z`` of one column."""

    inline = True

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph of the value."""
        covariance, z = inputs
        return [pt.dot(cholesky(covariance), z)]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[TensorVariable]:
        """Return the gradients with respect to the lower triangle of ``K`` and to ``z``."""
        [covariance, z], [cotangent] = inputs, cotangents
        factor = cholesky(covariance)
        u = pt.dot(factor.mT, cotangent)
        return [RankOnePullback()(factor, u[:, 0], z[:, 0]), u]


@node_rewriter([Dot])
def local_factor_times_vector(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``cholesky(K) @ z -> factor_times_vector(K, z)`` if the factor has no other reader."""
    [factor, z], [out] = node.inputs, node.outputs
    if z.type.shape[1] != 1 or len(fgraph.clients[factor]) > 1:
        return None
    covariance = factored_covariance(fgraph, factor)
    if covariance is None or not _is_covered(covariance.type.shape):
        return None
    if {covariance.type.dtype, z.type.dtype} != {"float64"}:
        return None
    return replacement(out, FactorTimesVector()(covariance, z))


def _is_covered(shape: tuple[int | None, ...]) -> bool:
    """Return whether kernels have the gradient for a matrix of this static shape."""
    rows, columns = shape
    return rows is not None and rows == columns and rows <= MAX_ROWS
