r"""Solve for all rows of a matrix at once, before the gradient is taken.

.. code::

    solve_triangular(L, B, b_ndim=1)  ->  solve_triangular(L, B.T).T        one matrix L for all rows of B

PyTensor has this rewrite in ``specialize``, after the gradient. With :math:`C = L^{-1} B^\top` and
:math:`\bar B = L^{-\top} \bar C`, the gradient of ``L`` is the lower triangle of :math:`-\bar B C^\top`, one matrix product.
The gradient of solves of single vectors is a sum of one outer product per row, which takes longer to rewrite. A multivariate
normal with a matrix of observations is such a solve. The gradient adds the same products in another order.

When it applies
---------------
Before the gradient is taken, to a triangular solve of vectors by one matrix, which may have leading axes of length one. The
rule runs after the rules that look for solves of vectors, such as :mod:`~pymc_fastlogp.rewrites.linalg.terms_of_covariance`.

When it refuses
---------------
One matrix per row, a single vector, and the factor of an inverse, which
:mod:`~pymc_fastlogp.rewrites.linalg.cholesky_of_inverse` avoids.
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
from pymc_fastlogp.rewrites.linalg.cholesky_of_gram import without_leading_axes
from pymc_fastlogp.rewrites.linalg.cholesky_of_inverse import inverted_matrix


@node_rewriter([blockwise_of(OpPattern(SolveTriangular, b_ndim=1))])
def local_solve_of_rows(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``solve_triangular(L, B, b_ndim=1) -> solve_triangular(L, B.T).T``."""
    factor = without_leading_axes(node.inputs[0])
    if isinstance(core_op(factor.owner_op), Cholesky) and inverted_matrix(factor.owner) is not None:
        return None
    return batched_vector_b_solve_to_matrix_b_solve.transform(fgraph, node)
