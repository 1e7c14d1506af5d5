r"""``cholesky(s * K) -> sqrt(s) * cholesky(K)``: factor a constant matrix once, not each multiple of it.

.. code::

    cholesky(s * K)  ->  sqrt(s) * cholesky(K)      K constant, s scalar

:math:`s K = (\sqrt s L) (\sqrt s L)^\top`. A covariance or precision that is known up to a scale is written so: a relationship matrix of
animals, the distances of sites or of species on a tree. The factor of ``K`` is computed when the graph is
compiled; what is left costs :math:`n^2` instead of :math:`n^3`, and so does the gradient.

Where ``s`` is not positive and finite the factor is nan; of an infinite matrix LAPACK may return an infinite diagonal, of which a density
is as impossible. A matrix ``K`` that is not positive definite is left to upstream,
and so is one that is not constant, whose factor has to be computed anyway. Where a multiple overflows or is subnormal, upstream
fails, and the rule does not.
"""

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import constant, switch
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.math import gt, lt, sqrt
from pytensor.tensor.rewriting.blockwise import blockwise_of
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.algebra import multiply_all, split_product


@node_rewriter([blockwise_of(Cholesky)])
def local_cholesky_of_scaled(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``cholesky(s * K) -> sqrt(s) * cholesky(K)``."""
    [product], [out] = node.inputs, node.outputs
    found = _scale(product)
    if found is None or not node.op.core_op.lower or product.type.dtype != out.type.dtype:
        return None
    scale, matrix = found
    if not np.isfinite(matrix.data).all():
        return None
    nan = np.array(np.nan, dtype=out.type.dtype)
    root = switch(gt(scale, 0) & lt(scale, np.inf), sqrt(scale), nan)
    try:
        factor = root * constant(np.linalg.cholesky(matrix.data))
    except np.linalg.LinAlgError:
        return None
    copy_stack_trace(out, [root, factor])
    return [factor] if out.type.is_super(factor.type) else None


def _scale(x: TensorVariable) -> tuple[TensorVariable, TensorConstant] | None:
    """Return ``s`` and ``K`` if ``x`` is ``s * K`` or ``K / s``."""
    factors = [1 / factor if is_inverse else factor for factor, is_inverse in split_product(x)]
    scales = [factor for factor in factors if all(factor.type.broadcastable)]
    matrices = [factor for factor in factors if factor not in scales]
    if not scales or len(matrices) != 1 or not isinstance(matrices[0], TensorConstant):
        return None
    # Of one row, both factors of a product are scalars.
    return multiply_all(scales), matrices[0]
