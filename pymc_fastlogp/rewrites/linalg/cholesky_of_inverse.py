r"""Factorize a precision matrix instead of its inverse.

.. code::

    solve_triangular(cholesky(inv(P)), b)  ->  (b[::-1] @ M)[::-1]      M = cholesky(P[::-1, ::-1])
    diagonal(cholesky(inv(P)))             ->  1 / diagonal(M)[::-1]

Let :math:`J` be the permutation that reverses the order and :math:`J P J = M M^\top` with :math:`M` lower triangular. Then

.. math:: P^{-1} = (J M^{-\top} J) (J M^{-\top} J)^\top .

This factor is lower triangular with a positive diagonal, so it is the Cholesky factor of :math:`P^{-1}`. The map
:math:`x \mapsto J M^\top J x` solves with the factor. Its diagonal is the reversed, inverted diagonal of :math:`M`.

``MvNormal(tau=P)`` inverts, factorizes and solves, in the density and in its gradient. A conditional autoregression is a case.
The inverse loses digits in proportion to the condition number of :math:`P`.

Both sides are NaN unless :math:`P` is positive definite. For a matrix that is singular to the last digit, PyTensor's inverse
may raise ``LinAlgError`` where the rule returns a finite, small log density.

When it applies
---------------
To one matrix that is symmetric by construction: a product ``L @ L.T``, a symmetric constant, a diagonal matrix, elementwise
functions of these and of scalars. PyTensor reads the lower triangle of the inverse, the rule the lower triangle of
:math:`J P J`.

When it refuses
---------------
A matrix that only its user knows to be symmetric, batches, upper factors, and a factor with any other reader.
"""

import numpy as np
from pytensor.assumptions import SYMMETRIC, check_assumption
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import ExtractDiag, atleast_Nd, diagonal
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky, cholesky
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import dot
from pytensor.tensor.rewriting.blockwise import blockwise_of
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.blockwise import core_op
from pymc_fastlogp.rewrites.linalg.cholesky_of_gram import root_of_gram, without_leading_axes


@node_rewriter([blockwise_of(Cholesky)])
def local_cholesky_of_inverse(
    fgraph: FunctionGraph, node: Apply
) -> dict[TensorVariable, TensorVariable] | None:
    """Rewrite every reader of ``cholesky(inv(P))``, if each is a solve or takes the diagonal."""
    [factor] = node.outputs
    precision = inverted_matrix(node)
    if precision is None or not is_symmetric(fgraph, precision):
        return None
    m = cholesky(_reversed(precision), lower=True)
    copy_stack_trace(factor, m)
    new = {}
    for user, _ in fgraph.clients[factor]:
        result = _rewritten_reader(user, factor, m)
        if result is None:
            return None
        [out] = user.outputs
        new[out] = atleast_Nd(result, n=out.type.ndim)
        copy_stack_trace(out, new[out])
    return new if all(out.type.is_super(result.type) for out, result in new.items()) else None


def inverted_matrix(node: Apply) -> TensorVariable | None:
    """Return ``P`` if ``node`` is the lower factor of ``inv(P)`` of one matrix ``P``."""
    inverse = without_leading_axes(node.inputs[0])
    if not core_op(node.op).lower or not isinstance(core_op(inverse.owner_op), MatrixInverse):
        return None
    [precision] = inverse.owner.inputs
    is_one = precision.type.ndim == 2 and precision.type.dtype == node.outputs[0].type.dtype
    return precision if is_one else None


def _reversed(x: TensorVariable) -> TensorVariable:
    """Return a matrix with rows and columns reversed. Of a scaled constant, the constant is reversed."""
    operands = x.owner.inputs if isinstance(x.owner_op, Elemwise) else [x]
    matrices = [operand for operand in operands if not all(operand.type.broadcastable)]
    if not all(isinstance(operand, Constant) for operand in matrices):
        return x[::-1, ::-1]
    return x.owner.op(*(y[::-1, ::-1] if y in matrices else y for y in operands))


def _rewritten_reader(
    user: Apply, factor: TensorVariable, m: TensorVariable
) -> TensorVariable | None:
    """Return the output of a reader of the factor, computed from ``m``; None if the reader is of another kind."""
    op = core_op(user.op)
    if isinstance(op, ExtractDiag):
        is_main = (op.offset, op.axis1, op.axis2) == (0, *range(factor.type.ndim)[-2:])
        return 1 / diagonal(m)[::-1] if is_main else None
    if not isinstance(op, SolveTriangular) or (op.lower, op.unit_diagonal) != (True, False):
        return None
    matrix, b = user.inputs
    if matrix is not factor or b is factor or op.b_ndim != 1 or b.type.ndim > 2:
        return None
    return dot(b[..., ::-1], m)[..., ::-1]


def is_symmetric(fgraph: FunctionGraph, x: TensorVariable) -> bool:
    """Return whether a matrix or a scalar is symmetric by construction.

    PyTensor's assumptions cover many Ops, but neither constants nor ``L @ L.T``. An elementwise function of symmetric matrices
    is symmetric.
    """
    seen, pending = set(), [x]
    while pending:
        y = pending.pop()
        if y in seen:
            continue
        seen.add(y)
        if _is_symmetric_leaf(fgraph, y):
            continue
        if not isinstance(y.owner_op, Elemwise) or len(y.owner.outputs) != 1:
            return False
        pending += y.owner.inputs
    return True


def _is_symmetric_leaf(fgraph: FunctionGraph, x: TensorVariable) -> bool:
    if all(x.type.broadcastable) or check_assumption(fgraph, x, SYMMETRIC):
        return True
    if isinstance(x, Constant):
        return x.type.ndim == 2 and np.array_equal(x.data, x.data.T)
    return root_of_gram(x) is not None
