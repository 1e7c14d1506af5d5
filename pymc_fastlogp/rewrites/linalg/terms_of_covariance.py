r"""Differentiate the Gaussian terms of a covariance by one inverse, not through its Cholesky factorization.

.. code::

    sum(log(diag(cholesky(K))))    ->  half_logdet(K)        K one matrix, or a batch of small matrices
    sum(solve(cholesky(K), b)**2)  ->  quadratic_form(K, b)  b vectors of one matrix, or one vector per matrix

A Gaussian density with covariance :math:`K = L L^\top` has the terms

.. math::

    \ell = \tfrac12 \log \det K = \sum_i \log L_{ii}, \qquad
    q = b^\top K^{-1} b = z^\top z, \quad z = L^{-1} b,

whose differentials are, with :math:`w = K^{-1} b = L^{-\top} z`,

.. math::

    d\ell = \tfrac12 \operatorname{tr}(K^{-1} dK), \qquad dq = 2 w^\top db - w^\top dK\, w.

PyTensor differentiates the factorization: one matrix product and two triangular solves with :math:`n` right-hand sides,
:math:`4 n^3` operations. The inverse of :math:`K` from its factor (LAPACK's ``potri``) takes :math:`\tfrac23 n^3`. For batches
of small matrices a kernel uses straight-line code. There the derivative of the factorization takes :math:`2 n^3`
multiplications, the inverse :math:`n^3 / 3`.

The values are computed by the same nodes as before. The Ops exist for the gradient only: compilation inlines their graphs.

A factorization reads the lower triangle, so the gradient is taken with respect to the lower triangle, where an element below
the diagonal counts twice. No assumption is made about the upper triangle. Where :math:`K` has no factor, the gradient is NaN,
as in PyTensor. The gradient differs from PyTensor's by round-off times the condition number of :math:`K`.

When it applies
---------------
Before the gradient is taken, to the lower factor of

- one matrix of more than 32 rows, or of an unknown number of rows: ``pm.MvNormal(cov=...)``, a marginal Gaussian process;
- a batch of matrices of 1 to 12 rows, with one vector per matrix: several outcomes per row with covariances of their own.

When it refuses
---------------
- One matrix of at most 32 rows, for which kernels have straight-line code.
- A batch of larger matrices, one vector shared by a batch, or several vectors per matrix of a batch.
- An upper factor, a factor given by ``chol=...``, or a factor that another rule computes without factorizing.
- A diagonal other than the main one, or a solve with a matrix as right-hand side.

References
----------
I. Murray, "Differentiation of the Cholesky decomposition", 2016.
"""

from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.builders import SymbolicOp
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import ExtractDiag
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky, cholesky
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular, solve_triangular
from pytensor.tensor.math import Sum
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.blockwise import core_op
from pymc_fastlogp.analysis.elemwise import operand, squared
from pymc_fastlogp.ops import MAX_ROWS_UNROLLED_CHOLESKY, MAX_ROWS_UNROLLED_SOLVE, LowerInverse
from pymc_fastlogp.rewrites.linalg.cholesky_of_gram import local_cholesky_of_gram
from pymc_fastlogp.rewrites.linalg.cholesky_of_inverse import local_cholesky_of_inverse
from pymc_fastlogp.rewrites.linalg.cholesky_of_scaled import local_cholesky_of_scaled
from pymc_fastlogp.rewrites.replacement import replacement

# Rules that compute a factor, and its gradient, without factorizing.
KNOWN_FACTORS = (local_cholesky_of_gram, local_cholesky_of_inverse, local_cholesky_of_scaled)


class HalfLogDet(SymbolicOp):
    """``sum(log(diag(cholesky(K))))`` of a matrix ``K``, with the gradient of a log-determinant."""

    inline = True

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph of the value."""
        [covariance] = inputs
        return [pt.log(pt.diagonal(cholesky(covariance))).sum()]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[TensorVariable]:
        """Return ``K**-1 / 2`` times the cotangent."""
        [covariance], [cotangent] = inputs, cotangents
        inverse = LowerInverse()(cholesky(covariance))
        below_twice = 1 - 0.5 * pt.eye(covariance.shape[0], dtype=inverse.type.dtype)
        return [cotangent * below_twice * inverse]


class QuadraticForm(SymbolicOp):
    """``sum(solve(cholesky(K), b)**2)`` of a matrix ``K`` and each row ``b`` of another matrix."""

    inline = True

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph of the value."""
        return [pt.sqr(_whitened(*inputs)).sum(axis=1)]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[TensorVariable]:
        """Return ``-w w^T`` of the lower triangle, and ``2 w``, times the cotangent."""
        [covariance, rows], [cotangent] = inputs, cotangents
        factor = cholesky(covariance)
        w = solve_triangular(factor.mT, _whitened(covariance, rows), lower=False, b_ndim=1)
        scaled = cotangent[:, None] * w
        n = covariance.shape[0]
        below_twice = 2 * pt.tri(n, dtype=w.type.dtype) - pt.eye(n, dtype=w.type.dtype)
        return [-below_twice * pt.dot(scaled.T, w), 2 * scaled]


class HalfLogDets(SymbolicOp):
    """:class:`HalfLogDet` of each small matrix ``K`` of a batch."""

    inline = True

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph of the values."""
        [covariance] = inputs
        return [pt.log(pt.diagonal(cholesky(covariance), axis1=-2, axis2=-1)).sum(axis=-1)]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[TensorVariable]:
        """Return ``K**-1 / 2`` times the cotangent."""
        [covariance], [cotangent] = inputs, cotangents
        return [_triangle_gradient(0.5 * cotangent, LowerInverse()(cholesky(covariance)))]


class QuadraticForms(SymbolicOp):
    """:class:`QuadraticForm` of each small matrix ``K`` of a batch and its vector ``b``."""

    inline = True

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph of the values."""
        return [pt.sqr(_whitened(*inputs)).sum(axis=-1)]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[TensorVariable]:
        """Return ``-w w^T`` of the lower triangle, and ``2 w``, times the cotangent."""
        [covariance, b], [cotangent] = inputs, cotangents
        factor = cholesky(covariance)
        w = solve_triangular(factor.mT, _whitened(covariance, b), lower=False, b_ndim=1)
        outer = w[..., :, None] * w[..., None, :]
        return [_triangle_gradient(-cotangent, outer), 2 * cotangent[..., None] * w]


def _whitened(covariance: TensorVariable, b: TensorVariable) -> TensorVariable:
    """Return ``z = L^-1 b``."""
    return solve_triangular(cholesky(covariance), b, lower=True, b_ndim=1)


def _triangle_gradient(scale: TensorVariable, symmetric: TensorVariable) -> TensorVariable:
    """Return the gradient by the lower triangle of each matrix, given as a scale times a symmetric matrix."""
    n = symmetric.type.shape[-1]
    triangle = pt.tri(n, dtype=symmetric.type.dtype)
    # Zero times an element of the triangle: a NaN there has to reach the upper triangle, as in PyTensor.
    above = symmetric[..., -1:, :1] * triangle
    elements = pt.switch(pt.tri(n, dtype="bool"), symmetric, above)
    return scale[..., None, None] * (triangle + pt.tri(n, k=-1, dtype=triangle.dtype)) * elements


@node_rewriter([Sum])
def local_half_logdet(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``sum(log(diag(cholesky(K)))) -> half_logdet(K)``, also of each matrix of a batch."""
    [out] = node.outputs
    if (factor := _factor_of_logdet(node)) is None:
        return None
    if (batch := _factored_batch(fgraph, factor)) is not None:
        return _summed(node, HalfLogDets()(batch))
    if not all(out.type.broadcastable):
        return None
    covariance = factored_covariance(fgraph, factor)
    return None if covariance is None else _expanded(out, HalfLogDet()(covariance))


@node_rewriter([Sum])
def local_quadratic_form(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``sum(solve(cholesky(K), b)**2) -> quadratic_form(K, b)``, also of each matrix of a batch."""
    [out] = node.outputs
    if (whitened := _solution_of_form(node)) is None:
        return None
    factor, b = whitened.owner.inputs
    if (batch := _factored_batch(fgraph, factor)) is not None:
        # One vector per matrix, as far as the static shapes tell.
        has_vectors = batch.type.shape[:-1] == b.type.shape
        return _summed(node, QuadraticForms()(batch, b)) if has_vectors else None
    if node.op.axis not in (None, (whitened.ndim - 1,)) or b.ndim > 2:
        return None
    if whitened.ndim != out.ndim + 1:
        return None
    covariance = factored_covariance(fgraph, factor)
    if covariance is None:
        return None
    forms = QuadraticForm()(covariance, pt.atleast_2d(b))
    return _expanded(out, forms if out.ndim else forms[0])


def _factor_of_logdet(node: Apply) -> TensorVariable | None:
    """Return ``L`` if a node is ``sum(log(diag(L)))``."""
    diagonal = operand(node.inputs[0], ps.Log)
    if diagonal is None or not isinstance(diagonal.owner_op, ExtractDiag):
        return None
    [factor], op = diagonal.owner.inputs, diagonal.owner_op
    last_axes = {factor.ndim - 2, factor.ndim - 1}
    is_main = not op.offset and {op.axis1 % factor.ndim, op.axis2 % factor.ndim} == last_axes
    return factor if is_main else None


def _solution_of_form(node: Apply) -> TensorVariable | None:
    """Return ``solve(L, b)`` if a node is ``sum(solve(L, b)**2)``, with ``L`` lower and each ``b`` a vector."""
    whitened = squared(node.inputs[0])
    op = None if whitened is None else core_op(whitened.owner_op)
    if not isinstance(op, SolveTriangular) or not op.lower or op.unit_diagonal or op.b_ndim != 1:
        return None
    return whitened


def factored_covariance(fgraph: FunctionGraph, factor: TensorVariable) -> TensorVariable | None:
    """Return ``K`` if ``factor`` is the lower ``cholesky(K)`` of one matrix, which may have leading axes of length one."""
    while isinstance(factor.owner_op, DimShuffle) and factor.owner_op.is_left_expand_dims:
        factor = factor.owner.inputs[0]
    covariance = _below_cholesky(factor)
    if covariance is None:
        return None
    *batch, _, n = covariance.type.shape
    if any(length != 1 for length in batch) or (n is not None and n <= MAX_ROWS_UNROLLED_SOLVE):
        return None
    if _is_known_factor(fgraph, factor):
        return None
    return covariance.squeeze(axis=tuple(range(len(batch)))) if batch else covariance


def _factored_batch(fgraph: FunctionGraph, factor: TensorVariable) -> TensorVariable | None:
    """Return ``K`` if ``factor`` is the lower ``cholesky(K)`` of a batch of small matrices."""
    covariance = _below_cholesky(factor)
    if covariance is None:
        return None
    *batch, _, n = covariance.type.shape
    is_small = n is not None and 0 < n <= MAX_ROWS_UNROLLED_CHOLESKY
    if not is_small or all(length == 1 for length in batch):
        return None
    return None if _is_known_factor(fgraph, factor) else covariance


def _below_cholesky(factor: TensorVariable) -> TensorVariable | None:
    """Return ``K`` if ``factor`` is the lower ``cholesky(K)``."""
    op = factor.owner_op
    if isinstance(op, Blockwise) and isinstance(op.core_op, Cholesky) and op.core_op.lower:
        [covariance] = factor.owner.inputs
        return covariance
    return None


def _is_known_factor(fgraph: FunctionGraph, factor: TensorVariable) -> bool:
    """Return whether another rule is about to compute the factor without factorizing."""
    return any(rule.transform(fgraph, factor.owner) for rule in KNOWN_FACTORS)


def _expanded(out: TensorVariable, result: TensorVariable) -> list[TensorVariable] | None:
    """Replace ``out`` by a result with fewer leading axes."""
    return replacement(out, pt.expand_dims(result, tuple(range(out.ndim - result.ndim))))


def _summed(node: Apply, terms: TensorVariable) -> list[TensorVariable] | None:
    """Replace a sum by the terms of each matrix, summed over the axes of the batch that the node sums over."""
    last = terms.ndim
    axes = range(last + 1) if node.op.axis is None else node.op.axis
    if last not in axes:
        return None
    others = tuple(axis for axis in axes if axis != last)
    return replacement(node.outputs[0], terms.sum(axis=others) if others else terms)
