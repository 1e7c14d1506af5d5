r"""``cholesky(inv(P)) -> cholesky(P[::-1, ::-1])``: factor a precision matrix instead of the covariance.

.. code::

    solve_triangular(cholesky(inv(P)), b)  ->  (b[::-1] @ M)[::-1]      M = cholesky(P[::-1, ::-1])
    diagonal(cholesky(inv(P)))             ->  1 / diagonal(M)[::-1]

With :math:`J` the permutation that reverses the order, :math:`J P J = M M^\top` for a lower triangular :math:`M`, so that

.. math:: P^{-1} = (J M^{-\top} J) (J M^{-\top} J)^\top,

of which the factor is lower triangular and has a positive diagonal: it is the Cholesky factor of :math:`P^{-1}`,
:math:`x \mapsto J M^\top J x` solves with it, and its diagonal is that of :math:`M`, reversed and inverted.

``MvNormal(tau=P)`` inverts and factors, and so does its gradient. Without the inverse, no digits are lost in
proportion to the condition of :math:`P`. Both sides are nan unless :math:`P` is positive definite.

Upstream reads the lower triangle of the inverse, the right side that of :math:`J P J`. So :math:`P` has to be symmetric by construction.
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
from pymc_fastlogp.rewrites.linalg.cholesky_of_gram import root_of_gram, without_left_dummies


@node_rewriter([blockwise_of(Cholesky)])
def local_cholesky_of_inverse(
    fgraph: FunctionGraph, node: Apply
) -> dict[TensorVariable, TensorVariable] | None:
    """Rewrite all that uses ``cholesky(inv(P))``, if it solves with it or takes its diagonal."""
    [factor] = node.outputs
    precision = inverted_by(node)
    if precision is None or not is_symmetric(fgraph, precision):
        return None
    m = cholesky(_reversed(precision), lower=True)
    copy_stack_trace(factor, m)
    new = {}
    for user, _ in fgraph.clients[factor]:
        result = _with_reversed(user, factor, m)
        if result is None:
            return None
        [out] = user.outputs
        new[out] = atleast_Nd(result, n=out.type.ndim)
        copy_stack_trace(out, new[out])
    return new if all(out.type.is_super(result.type) for out, result in new.items()) else None


def inverted_by(node: Apply) -> TensorVariable | None:
    """Return ``P`` if ``node`` is the lower factor of the inverse of one matrix ``P``, else None."""
    inverse = without_left_dummies(node.inputs[0])
    if not core_op(node.op).lower or not isinstance(core_op(inverse.owner_op), MatrixInverse):
        return None
    [precision] = inverse.owner.inputs
    is_one = precision.type.ndim == 2 and precision.type.dtype == node.outputs[0].type.dtype
    return precision if is_one else None


def _reversed(x: TensorVariable) -> TensorVariable:
    """Return a matrix with its rows and columns in reverse; of a multiple of a constant, that of the constant."""
    operands = x.owner.inputs if isinstance(x.owner_op, Elemwise) else [x]
    matrices = [operand for operand in operands if not all(operand.type.broadcastable)]
    if not all(isinstance(operand, Constant) for operand in matrices):
        return x[::-1, ::-1]
    return x.owner.op(*(y[::-1, ::-1] if y in matrices else y for y in operands))


def _with_reversed(user: Apply, factor: TensorVariable, m: TensorVariable) -> TensorVariable | None:
    """Return the output of a node that uses the factor, by that of ``P`` reversed; None if it cannot."""
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
    """Return whether a matrix, or a number in its place, equals its transpose because of how it is computed.

    PyTensor knows that of many Ops, but not of a constant and of a product with a transpose, of which a precision often consists. An elementwise
    function keeps it where all of its operands have it.
    """
    seen, to_see = set(), [x]
    while to_see:
        y = to_see.pop()
        if y in seen:
            continue
        seen.add(y)
        if _is_symmetric_itself(fgraph, y):
            continue
        if not isinstance(y.owner_op, Elemwise) or len(y.owner.outputs) != 1:
            return False
        to_see += y.owner.inputs
    return True


def _is_symmetric_itself(fgraph: FunctionGraph, x: TensorVariable) -> bool:
    if all(x.type.broadcastable) or check_assumption(fgraph, x, SYMMETRIC):
        return True
    if isinstance(x, Constant):
        return x.type.ndim == 2 and np.array_equal(x.data, x.data.T)
    return root_of_gram(x) is not None
