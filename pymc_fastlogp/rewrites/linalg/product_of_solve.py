r"""Use ``B`` as the product of a triangle ``L`` and the solution of ``L @ X = B``.

.. code::

    L @ solve_triangular(L, B)          ->  B
    solve_triangular(L, B).T @ L.T      ->  B.T

Standardized effects ``z`` whose sampler moves in the effects ``a = mean + L @ z`` are such a solution, and the likelihood contains
the product. Value and gradient of both cost :math:`K^2` multiplications per column, and the likelihood is no function of ``a`` alone for the rules about rows.

As in PyTensor's rule for ``x * (y / x)``, a singular ``L`` does not make the product NaN.

When it applies
---------------
Before the gradient is taken, to a lower triangle of known shape that is filled at constant positions, or that PyTensor knows to be lower triangular.

When it refuses
---------------
A matrix with entries above the diagonal, which the solver ignores and the product does not; zeros above the diagonal that a scale may make NaN;
unit diagonals; one matrix per row.
"""

import numpy as np
from pytensor.assumptions import LOWER_TRIANGULAR, check_assumption
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Dot
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.blockwise import core_op
from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.writes import is_set
from pymc_fastlogp.rewrites.packed_matrices.packed_array import packed
from pymc_fastlogp.rewrites.replacement import replacement


@node_rewriter([Dot])
def local_product_of_solve(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``L @ solve_triangular(L, B) -> B``."""
    (left, right), [out] = node.inputs, node.outputs
    if (b := _right_hand_side(fgraph, left, right)) is not None:
        return replacement(out, b)
    solution, factor = _transposed(left), _transposed(right)
    if solution is None or factor is None:
        return None
    b = _right_hand_side(fgraph, factor, solution)
    return None if b is None else replacement(out, b.T)


def _right_hand_side(
    fgraph: FunctionGraph, factor: TensorVariable, solution: TensorVariable
) -> TensorVariable | None:
    """Return ``B`` if ``solution`` is ``solve_triangular(factor, B)`` with a lower triangle."""
    op = core_op(solution.owner_op)
    if not isinstance(op, SolveTriangular) or not op.lower or op.unit_diagonal or op.b_ndim != 2:
        return None
    matrix, b = solution.owner.inputs
    return b if matrix is factor and _is_lower_triangle(fgraph, factor) else None


def _transposed(x: TensorVariable) -> TensorVariable | None:
    """Return ``y`` if ``x`` is ``y.T``."""
    is_transpose = isinstance(x.owner_op, DimShuffle) and x.owner.op.new_order == (1, 0)
    return x.owner.inputs[0] if is_transpose else None


def _is_lower_triangle(fgraph: FunctionGraph, x: TensorVariable) -> bool:
    """Return whether a matrix has zeros above the diagonal."""
    filled = packed(x) if is_set(x) else None
    if filled is None or fill_value(filled.fill) != 0:
        return check_assumption(fgraph, x, LOWER_TRIANGULAR)
    n_columns = filled.shape[1]
    places = (np.divmod(entry.where, n_columns) for entry in filled.entries)
    return all((rows >= columns).all() for rows, columns in places)
