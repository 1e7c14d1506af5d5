r"""``solve(L, b)`` of each row of a matrix as one solve of its transpose, before the gradient is taken.

.. code::

    solve_triangular(L, B, b_ndim=1)  ->  solve_triangular(L, B.T).T        L one matrix for all rows of B

PyTensor's own rewrite does that in ``specialize``, when the gradient has been taken. With :math:`C = L^{-1} B^\top` and :math:`\bar B = L^{-\top} \bar C`, the gradient of
``L`` is the lower triangle of :math:`-\bar B C^\top`, a product of two matrices; that of solves of vectors is a sum of as many outer products as there are rows, of which the
zeros are computed as well. A multivariate normal with a matrix of observations is such a solve, with a factor that PyMC gives an axis of length one; without it there
is less to rewrite.

A factor of an inverse is left to :mod:`~pymc_fastlogp.rewrites.linalg.cholesky_of_inverse`, which does without both.
"""

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.rewriting.unify import OpPattern
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.rewriting.blockwise import blockwise_of
from pytensor.tensor.rewriting.linalg.solvers import batched_vector_b_solve_to_matrix_b_solve
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.blockwise import core_op
from pymc_fastlogp.rewrites.linalg.cholesky_of_gram import without_left_dummies
from pymc_fastlogp.rewrites.linalg.cholesky_of_inverse import inverted_by


@node_rewriter([blockwise_of(OpPattern(SolveTriangular, b_ndim=1))])
def local_solve_of_rows(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``solve_triangular(L, B, b_ndim=1) -> solve_triangular(L, B.T).T``."""
    factor = without_left_dummies(node.inputs[0])
    if isinstance(core_op(factor.owner_op), Cholesky) and inverted_by(factor.owner) is not None:
        return None
    return batched_vector_b_solve_to_matrix_b_solve.transform(fgraph, node)
