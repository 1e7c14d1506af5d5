r"""Solve with a constant triangle and divide the right-hand side, instead of scaling the triangle.

.. code::

    solve_triangular(s * L, b)  ->  solve_triangular(L, b / s)      L constant, s scalar or a column

:math:`\operatorname{diag}(s) L x = b` is :math:`L x = \operatorname{diag}(s)^{-1} b`. The gradient of a scaled matrix is an
outer product, :math:`n^2` multiplications per right-hand side. The gradient of ``b / s`` takes :math:`n`.

A scale of zero or infinity makes the matrix singular or infinite. Where PyTensor's solution is NaN, ``b`` is set to NaN.

When it applies
---------------
``L`` is a square constant, as data are with ``freeze_model=True``. Scales are scalars, or columns such as ``sd[:, None]``.

When it refuses
---------------
- A matrix that is not constant: its gradient is needed anyway, and scaling it is less work than dividing many right-hand sides.
- Unit diagonals, products of integers, which may overflow, and columns scaled by ``L * s``.
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
from pymc_fastlogp.rewrites.replacement import replacement


@node_rewriter([blockwise_of(SolveTriangular)])
def local_solve_of_scaled(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``solve_triangular(s * L, b) -> solve_triangular(L, b / s)``."""
    (matrix, b), [out] = node.inputs, node.outputs
    # A product of integers may overflow.
    if node.op.core_op.unit_diagonal or matrix.type.dtype not in float_dtypes:
        return None
    factors = _factors(matrix)
    matrices = [factor for factor in factors if not factor.type.broadcastable[-1]]
    scales = [factor for factor in factors if factor.type.broadcastable[-1]]
    if len(matrices) != 1 or not scales or not _is_square_constant(matrices[0]):
        return None
    scale = multiply_all(scales)
    # A single zero makes the whole matrix singular.
    is_singular = eq(scale, 0).any(axis=-2, keepdims=True)
    nan = np.array(np.nan, dtype=scale.type.dtype)
    scale = switch(is_singular | isinf(scale), nan, scale)
    divided = b / (scale if node.op.core_op.b_ndim == 2 else scale[..., 0])
    solution = node.op(matrices[0], divided)
    copy_stack_trace(out, divided)
    return replacement(out, solution)


def _is_square_constant(matrix: TensorVariable) -> bool:
    """Return whether a factor is a square constant. A constant row times a column is square too, but neither factor is."""
    return isinstance(matrix, Constant) and matrix.type.shape[-1] == matrix.type.shape[-2]


def _factors(x: TensorVariable) -> list[TensorVariable]:
    """Return the factors of a product, also below a squeeze of leading axes; else an empty list."""
    if isinstance(x.owner_op, DimShuffle) and x.owner.op.is_squeeze:
        op, [product] = x.owner.op, x.owner.inputs
        if op.drop != tuple(range(len(op.drop))):
            return []
        return [
            constant(factor.data.squeeze(op.drop)) if isinstance(factor, Constant) else op(factor)
            for factor in _factors(product)
        ]
    return operands(x, ps.Mul)
