r"""Factorize a constant matrix once at compile time, not each multiple of it.

.. code::

    cholesky(s * K), cholesky(K / s)  ->  sqrt(s) * cholesky(K), cholesky(K) / sqrt(s)     K constant, s scalar

:math:`s K = (\sqrt s L) (\sqrt s L)^\top`. Covariances known up to a scale are common: a relationship matrix of animals,
distances of sites or of species on a tree. Value and gradient then cost :math:`n^2` operations instead of :math:`n^3`. Together
with :mod:`~pymc_fastlogp.rewrites.linalg.solve_of_scaled`, ``MvNormal(cov=s**2 * K)`` keeps two solves with a constant
triangle.

Where ``s`` is not positive and finite, the factor is NaN. LAPACK may return an infinite diagonal for an infinite matrix; the
density is zero either way. Where a multiple of ``K`` overflows or is subnormal, PyTensor fails and the rule does not.

When it applies
---------------
``K`` is constant, as data are with ``freeze_model=True``. Each scale is a scalar that multiplies or divides.
``MvNormal(tau=s * K)`` is covered after :mod:`~pymc_fastlogp.rewrites.linalg.cholesky_of_inverse`.

When it refuses
---------------
A matrix that is not constant, whose factor is needed anyway; a constant that is not finite or not positive definite; upper
factors.
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
from pymc_fastlogp.rewrites.replacement import replacement


@node_rewriter([blockwise_of(Cholesky)])
def local_cholesky_of_scaled(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``cholesky(s * K) -> sqrt(s) * cholesky(K)``."""
    [product], [out] = node.inputs, node.outputs
    scaled = _scaled_constant(product)
    if scaled is None or not node.op.core_op.lower or product.type.dtype != out.type.dtype:
        return None
    scale, matrix = scaled
    if not np.isfinite(matrix.data).all():
        return None
    nan = np.array(np.nan, dtype=out.type.dtype)
    root = switch(gt(scale, 0) & lt(scale, np.inf), sqrt(scale), nan)
    try:
        factor = root * constant(np.linalg.cholesky(matrix.data))
    except np.linalg.LinAlgError:
        return None
    copy_stack_trace(out, root)
    return replacement(out, factor)


def _scaled_constant(x: TensorVariable) -> tuple[TensorVariable, TensorConstant] | None:
    """Return ``s`` and ``K`` if ``x`` is ``s * K`` or ``K / s``."""
    factors = [1 / factor if is_inverse else factor for factor, is_inverse in split_product(x)]
    scales = [factor for factor in factors if all(factor.type.broadcastable)]
    matrices = [factor for factor in factors if factor not in scales]
    if not scales or len(matrices) != 1 or not isinstance(matrices[0], TensorConstant):
        return None
    # With one row, a matrix is a scalar too.
    return multiply_all(scales), matrices[0]
