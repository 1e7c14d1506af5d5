r"""``sum(log(diag(L)))`` and ``sum(solve(L, b)**2)`` of ``L = cholesky(K)``: take their gradients by one inverse.

.. code::

    sum(log(diag(cholesky(K))))        ->  half_logdet(K)
    sum(solve(cholesky(K), b)**2)      ->  quadratic_form(K, b)

A Gaussian density with a covariance matrix :math:`K = L L^\top` has the terms

.. math::

    \ell = \tfrac12 \log \det K = \sum_i \log L_{ii}, \qquad
    q = b^\top K^{-1} b = z^\top z, \quad z = L^{-1} b,

whose differentials are, with :math:`w = K^{-1} b = L^{-\top} z`,

.. math::

    d\ell = \tfrac12 \operatorname{tr}(K^{-1} dK), \qquad dq = 2 w^\top db - w^\top dK\, w.

PyTensor differentiates the factorization: a product of two matrices and two triangular solves with :math:`n` right-hand sides, :math:`4 n^3`
operations (Murray, 2016, "Differentiation of the Cholesky decomposition"). The inverse of :math:`K` from its factor, LAPACK's
``potri``, takes :math:`\tfrac23 n^3`. The values are computed as before, by the same nodes.

A factorization reads the lower triangle alone, and so is the gradient given: with :math:`dK_{ij}` of the lower triangle, an element
below the diagonal counts twice. So nothing is assumed of the upper triangle, as upstream.

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
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky, cholesky
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular, solve_triangular
from pytensor.tensor.math import Sum
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.blockwise import core_op
from pymc_fastlogp.analysis.elemwise import operand, squared
from pymc_fastlogp.ops import MAX_ROWS_UNROLLED_SOLVE, LowerInverse
from pymc_fastlogp.rewrites.linalg.cholesky_of_gram import local_cholesky_of_gram
from pymc_fastlogp.rewrites.linalg.cholesky_of_inverse import local_cholesky_of_inverse
from pymc_fastlogp.rewrites.linalg.cholesky_of_scaled import local_cholesky_of_scaled

# What makes a factor cheap, and its gradient with it.
KNOWN_FACTORS = (local_cholesky_of_gram, local_cholesky_of_inverse, local_cholesky_of_scaled)


class HalfLogDet(SymbolicOp):
    """``sum(log(diag(cholesky(K))))`` of a matrix ``K``, with the gradient of a log-determinant."""

    inline = True

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph that computes it."""
        [covariance] = inputs
        return [pt.log(pt.diagonal(cholesky(covariance))).sum()]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[TensorVariable]:
        """Return ``K**-1 / 2`` times what is given."""
        [covariance], [given] = inputs, cotangents
        inverse = LowerInverse()(cholesky(covariance))
        below_twice = 1 - 0.5 * pt.eye(covariance.shape[0], dtype=inverse.type.dtype)
        return [given * below_twice * inverse]


class QuadraticForm(SymbolicOp):
    """``sum(solve(cholesky(K), b)**2)`` of a matrix ``K`` and each row ``b`` of another."""

    inline = True

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph that computes it."""
        return [pt.sqr(_whitened(*inputs)).sum(axis=1)]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[TensorVariable]:
        """Return ``-w w^T`` of the lower triangle, and ``2 w``, times what is given."""
        [covariance, rows], [given] = inputs, cotangents
        factor = cholesky(covariance)
        w = solve_triangular(factor.mT, _whitened(covariance, rows), lower=False, b_ndim=1)
        scaled = given[:, None] * w
        n = covariance.shape[0]
        below_twice = 2 * pt.tri(n, dtype=w.type.dtype) - pt.eye(n, dtype=w.type.dtype)
        return [-below_twice * pt.dot(scaled.T, w), 2 * scaled]


def _whitened(covariance: TensorVariable, rows: TensorVariable) -> TensorVariable:
    return solve_triangular(cholesky(covariance), rows, lower=True, b_ndim=1)


@node_rewriter([Sum])
def local_half_logdet(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``sum(log(diag(cholesky(K)))) -> half_logdet(K)``."""
    [out] = node.outputs
    diagonal = operand(node.inputs[0], ps.Log)
    if diagonal is None or not isinstance(diagonal.owner_op, ExtractDiag):
        return None
    [factor] = diagonal.owner.inputs
    if not is_of_matrices(diagonal.owner_op, factor) or not all(out.type.broadcastable):
        return None
    covariance = factored_covariance(fgraph, factor)
    return None if covariance is None else _checked(out, HalfLogDet()(covariance))


def is_of_matrices(op: ExtractDiag, x: TensorVariable) -> bool:
    """Return whether what is taken of an array are the main diagonals of its last two axes."""
    return not op.offset and {op.axis1 % x.ndim, op.axis2 % x.ndim} == {x.ndim - 2, x.ndim - 1}


@node_rewriter([Sum])
def local_quadratic_form(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``sum(solve(cholesky(K), b)**2) -> quadratic_form(K, b)``."""
    [out] = node.outputs
    whitened = squared(node.inputs[0])
    if whitened is None or not is_solve_of_rows(whitened.owner_op):
        return None
    if node.op.axis not in (None, (whitened.ndim - 1,)) or whitened.ndim != out.ndim + 1:
        return None
    factor, rows = whitened.owner.inputs
    covariance = factored_covariance(fgraph, factor)
    if covariance is None or rows.ndim > 2:
        return None
    forms = QuadraticForm()(covariance, pt.atleast_2d(rows))
    return _checked(out, forms if out.ndim else forms[0])


def is_solve_of_rows(op: Any) -> bool:
    """Return whether each row of what is given, a vector, is solved for by a lower triangle."""
    core = core_op(op)
    if not isinstance(core, SolveTriangular):
        return False
    return core.lower and not core.unit_diagonal and core.b_ndim == 1


def factored_covariance(fgraph: FunctionGraph, factor: TensorVariable) -> TensorVariable | None:
    """Return ``K`` if a matrix, whatever axes of length one are before its own, is the lower ``cholesky(K)``.

    None also where another rule is about to know the factor without factorizing.
    """
    while isinstance(factor.owner_op, DimShuffle) and factor.owner_op.is_left_expand_dims:
        factor = factor.owner.inputs[0]
    op = factor.owner_op
    if (
        not isinstance(op, Blockwise)
        or not isinstance(op.core_op, Cholesky)
        or not op.core_op.lower
    ):
        return None
    [covariance] = factor.owner.inputs
    *batch, _, n = covariance.type.shape
    if any(length != 1 for length in batch) or (n is not None and n <= MAX_ROWS_UNROLLED_SOLVE):
        return None
    if any(rule.transform(fgraph, factor.owner) for rule in KNOWN_FACTORS):
        return None
    return covariance.squeeze(axis=tuple(range(len(batch)))) if batch else covariance


def _checked(out: TensorVariable, result: TensorVariable) -> list[TensorVariable] | None:
    result = pt.expand_dims(result, tuple(range(out.ndim - result.ndim)))
    if not out.type.is_super(result.type):
        return None
    copy_stack_trace(out, result)
    return [result]
