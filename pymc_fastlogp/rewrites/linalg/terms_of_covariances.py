r"""The same for each of many small covariances: take the gradients of their Gaussian terms by their inverses.

.. code::

    sum(log(diag(cholesky(K))), axis=-1)        ->  half_logdets(K)
    sum(solve(cholesky(K), b)**2, axis=-1)      ->  quadratic_forms(K, b)

with a covariance of few rows for each index of a batch, and a vector for each of them. The gradients are those of
:mod:`~pymc_fastlogp.rewrites.linalg.terms_of_covariance`. In kernels, factors, solves and inverses of few rows are straight-line code in a loop
over the batch, whose lanes are matrices. There PyTensor's way, the derivative of the factorization, is :math:`2 n^3` multiplications of
whole matrices, of which half are by the zeros of a triangle; the inverse by the factor is :math:`n^3 / 3`.

The gradient is that of the lower triangle, in which an element below the diagonal counts twice, and zero above. It is nan also above where the
matrix has no factor, as upstream's is: there it is zero times an element of the triangle.

The Ops are here for the gradient only; they are replaced by their inner graphs when a function is compiled.
"""

from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.builders import SymbolicOp
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import ExtractDiag
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky, cholesky
from pytensor.tensor.linalg.solvers.triangular import solve_triangular
from pytensor.tensor.math import Sum
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.elemwise import operand, squared
from pymc_fastlogp.ops import MAX_ROWS_UNROLLED_CHOLESKY, LowerInverse
from pymc_fastlogp.rewrites.linalg.terms_of_covariance import (
    KNOWN_FACTORS,
    is_of_matrices,
    is_solve_of_rows,
)


class HalfLogDets(SymbolicOp):
    """``sum(log(diag(cholesky(K))))`` of each matrix ``K`` of a batch, with the gradient of a log-determinant."""

    inline = True

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph that computes it."""
        [covariance] = inputs
        return [pt.log(pt.diagonal(cholesky(covariance), axis1=-2, axis2=-1)).sum(axis=-1)]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[TensorVariable]:
        """Return ``K**-1 / 2`` times what is given."""
        [covariance], [given] = inputs, cotangents
        return [_of_triangle(0.5 * given, LowerInverse()(cholesky(covariance)))]


class QuadraticForms(SymbolicOp):
    """``sum(solve(cholesky(K), b)**2)`` of each matrix ``K`` of a batch and its vector ``b``."""

    inline = True

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph that computes it."""
        return [pt.sqr(_whitened(*inputs)).sum(axis=-1)]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[TensorVariable]:
        """Return ``-w w^T`` of the lower triangle, and ``2 w``, times what is given."""
        [covariance, b], [given] = inputs, cotangents
        factor = cholesky(covariance)
        w = solve_triangular(factor.mT, _whitened(covariance, b), lower=False, b_ndim=1)
        return [_of_triangle(-given, w[..., :, None] * w[..., None, :]), 2 * given[..., None] * w]


def _whitened(covariance: TensorVariable, b: TensorVariable) -> TensorVariable:
    return solve_triangular(cholesky(covariance), b, lower=True, b_ndim=1)


def _of_triangle(scale: TensorVariable, symmetric: TensorVariable) -> TensorVariable:
    """Return the derivative by the lower triangle, of a scale for each matrix times one by all elements."""
    n = symmetric.type.shape[-1]
    triangle = pt.tri(n, dtype=symmetric.type.dtype)
    # Not zero, which nan would not reach, but zero times one element, once for all that are above the diagonal.
    above = symmetric[..., -1:, :1] * triangle
    elements = pt.switch(pt.tri(n, dtype="bool"), symmetric, above)
    return scale[..., None, None] * (triangle + pt.tri(n, k=-1, dtype=triangle.dtype)) * elements


@node_rewriter([Sum])
def local_half_logdets(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``sum(log(diag(cholesky(K))), axis=-1) -> half_logdets(K)``, also of sums over the batch."""
    diagonal = operand(node.inputs[0], ps.Log)
    if diagonal is None or not isinstance(diagonal.owner_op, ExtractDiag):
        return None
    [factor] = diagonal.owner.inputs
    if not is_of_matrices(diagonal.owner_op, factor):
        return None
    covariance = _factored_covariances(fgraph, factor)
    return None if covariance is None else _summed(node, HalfLogDets()(covariance))


@node_rewriter([Sum])
def local_quadratic_forms(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``sum(solve(cholesky(K), b)**2, axis=-1) -> quadratic_forms(K, b)``, also of sums over the batch."""
    whitened = squared(node.inputs[0])
    if whitened is None or not is_solve_of_rows(whitened.owner_op):
        return None
    factor, b = whitened.owner.inputs
    covariance = _factored_covariances(fgraph, factor)
    # As many of one as of the other, as far as the types know.
    if covariance is None or covariance.type.shape[:-1] != b.type.shape:
        return None
    return _summed(node, QuadraticForms()(covariance, b))


def _factored_covariances(fgraph: FunctionGraph, factor: TensorVariable) -> TensorVariable | None:
    """Return ``K`` if an array is the lower ``cholesky(K)`` of each of a batch, None also where another rule knows it."""
    op = factor.owner_op
    if not (isinstance(op, Blockwise) and isinstance(op.core_op, Cholesky) and op.core_op.lower):
        return None
    [covariance] = factor.owner.inputs
    *batch, _, n = covariance.type.shape
    if n is None or not 0 < n <= MAX_ROWS_UNROLLED_CHOLESKY or all(length == 1 for length in batch):
        return None
    if any(rule.transform(fgraph, factor.owner) for rule in KNOWN_FACTORS):
        return None
    return covariance


def _summed(node: Apply, of_each: TensorVariable) -> list[TensorVariable] | None:
    """Return the sum over the other axes of the node, None if the last one is not among them."""
    [out] = node.outputs
    last = of_each.ndim
    axes = range(last + 1) if node.op.axis is None else node.op.axis
    if last not in axes:
        return None
    others = tuple(axis for axis in axes if axis != last)
    result = of_each.sum(axis=others) if others else of_each
    if not out.type.is_super(result.type):
        return None
    copy_stack_trace(out, result)
    return [result]
