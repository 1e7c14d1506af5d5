r"""``solve_triangular(s * L, b) -> solve_triangular(L, b / s)``: divide the right-hand side, not scale a constant matrix.

.. code::

    solve_triangular(s * L, b)  ->  solve_triangular(L, b / s)      L constant, s scalar or a column

:math:`\operatorname{diag}(s) L x = b` is :math:`L x = \operatorname{diag}(s)^{-1} b`. Of a matrix that is not constant the gradient is an outer
product, :math:`n^2` multiplications for each right-hand side; that of ``b / s`` takes :math:`n`. Where
``L`` is not constant, its gradient is needed anyway, and scaling it is less work than dividing many right-hand sides.

A matrix scaled by zero, or with one zero in the column, is singular, by infinity not finite: where upstream's solution is nan, ``b`` is made nan.
"""

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import constant, switch
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import eq, isinf
from pytensor.tensor.rewriting.blockwise import blockwise_of
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.algebra import multiply_all
from pymc_fastlogp.analysis.elemwise import operands


@node_rewriter([blockwise_of(SolveTriangular)])
def local_solve_of_scaled(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``solve_triangular(s * L, b) -> solve_triangular(L, b / s)``."""
    (matrix, b), [out] = node.inputs, node.outputs
    # A product of integers goes round.
    if node.op.core_op.unit_diagonal or matrix.type.dtype not in float_dtypes:
        return None
    factors = _factors(matrix)
    matrices = [factor for factor in factors if not factor.type.broadcastable[-1]]
    scales = [factor for factor in factors if factor.type.broadcastable[-1]]
    if len(matrices) != 1 or not scales or not _is_square_constant(matrices[0]):
        return None
    scale = multiply_all(scales)
    # One row of zeros makes a matrix singular.
    is_singular = eq(scale, 0).any(axis=-2, keepdims=True)
    nan = np.array(np.nan, dtype=scale.type.dtype)
    scale = switch(is_singular | isinf(scale), nan, scale)
    divided = b / (scale if node.op.core_op.b_ndim == 2 else scale[..., 0])
    solution = node.op(matrices[0], divided)
    copy_stack_trace(out, [divided, solution])
    return [solution] if out.type.is_super(solution.type) else None


def _is_square_constant(matrix: TensorVariable) -> bool:
    """Return whether a factor is a constant that can be solved with; a column times a row is square, and neither of them."""
    return isinstance(matrix, Constant) and matrix.type.shape[-1] == matrix.type.shape[-2]


def _factors(x: TensorVariable) -> list[TensorVariable]:
    """Return the factors of a product, also of one that lost leading dimensions of length one; else nothing."""
    if isinstance(x.owner_op, DimShuffle) and x.owner.op.is_squeeze:
        op, [product] = x.owner.op, x.owner.inputs
        if op.drop != tuple(range(len(op.drop))):
            return []
        return [
            constant(factor.data.squeeze(op.drop)) if isinstance(factor, Constant) else op(factor)
            for factor in _factors(product)
        ]
    return operands(x, ps.Mul)
