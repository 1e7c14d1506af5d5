"""Use ``L`` as the Cholesky factor of ``L @ L.T``, if ``L`` is lower triangular with a nonnegative diagonal.

.. code::

    cholesky(L @ L.T)  ->  L

The lower triangular factor with a positive diagonal is unique. ``MvNormal(chol=L)`` multiplies and factorizes again. Without
both, no gradient passes through a factorization. The product also loses half of the digits where two variables are nearly
equal.

PyTensor has the rule for matrices with a tag for triangular ones. The tag is lost at the first rewrite of its variable. Here
the triangle is known from the positions that were set, and the sign of the diagonal from the functions that computed it.

A factorization of NaN or infinity returns NaN, on which PyMC's check of the diagonal relies. So the diagonal is set to NaN
where an entry of ``L`` is not finite. A zero on the diagonal stays zero and fails the same check. Where ``L @ L.T`` overflows,
underflows or is numerically singular, PyTensor fails and the rule does not.

When it applies
---------------
To the lower factor, where ``L`` is a square matrix of known shape that is filled at constant positions on and below the
diagonal. The diagonal must come from nonnegative functions: ``exp``, squares, roots, ``softplus``, constants, and their sums,
products and quotients.

When it refuses
---------------
A diagonal that may be negative, entries above the diagonal, indices computed at run time, the upper factor.
"""

from functools import reduce
from operator import or_

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import atleast_Nd, switch, zeros
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.math import Dot, isinf, isnan
from pytensor.tensor.rewriting.blockwise import blockwise_of
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import operands
from pymc_fastlogp.analysis.ranges import is_nonnegative
from pymc_fastlogp.analysis.writes import is_set
from pymc_fastlogp.rewrites.packed_matrices.packed_array import Packed, packed, value_of
from pymc_fastlogp.rewrites.replacement import replacement


@node_rewriter([blockwise_of(Cholesky)])
def local_cholesky_of_gram(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``cholesky(L @ L.T) -> L``."""
    [product], [out] = node.inputs, node.outputs
    factor = root_of_gram(without_leading_axes(product))
    if factor is None or factor.type.ndim != 2 or not node.op.core_op.lower:
        return None
    filled = packed(factor) if is_set(factor) else None
    if filled is None or factor.type.dtype != out.type.dtype or not _is_factor(filled):
        return None
    failure = _not_finite(filled)
    if failure is None:
        return None
    triangle = zeros(filled.shape, dtype=out.type.dtype)
    for entry in filled.entries:
        rows, cols = np.unravel_index(entry.where, filled.shape)
        value = value_of(entry)
        if (rows == cols).any():
            value = switch(failure, np.nan, value)
        triangle = triangle[rows, cols].set(value)
    return replacement(out, atleast_Nd(triangle, n=out.type.ndim))


def root_of_gram(x: TensorVariable) -> TensorVariable | None:
    """Return ``L`` if ``x`` is ``L @ L.T`` of any matrix ``L``, which may be a transpose."""
    if not isinstance(x.owner_op, Dot):
        return None
    left, right = x.owner.inputs
    is_gram = _is_transpose(right, left) or _is_transpose(left, right)
    return left if is_gram else None


def _is_transpose(x: TensorVariable, y: TensorVariable) -> bool:
    is_transpose = isinstance(x.owner_op, DimShuffle) and x.owner.op.is_matrix_transpose
    return is_transpose and x.owner.inputs[0] is y


def without_leading_axes(x: TensorVariable) -> TensorVariable:
    """Return ``x`` without leading axes of length one that a DimShuffle added."""
    is_expanded = isinstance(x.owner_op, DimShuffle) and x.owner.op.is_left_expand_dims
    return x.owner.inputs[0] if is_expanded else x


def _is_factor(filled: Packed) -> bool:
    """Return whether a matrix is square, lower triangular and has a full, nonnegative diagonal."""
    n, m = filled.shape
    n_on_diagonal = 0
    for entry in filled.entries:
        rows, cols = np.divmod(entry.where, m)
        if (rows < cols).any() or not is_nonnegative(entry.leaf, entry.which[rows == cols]):
            return False
        n_on_diagonal += int((rows == cols).sum())
    return n == m == n_on_diagonal


def _not_finite(filled: Packed) -> TensorVariable | None:
    """Return the condition that a matrix is not finite; None if its fill is neither zero nor ``switch(c, nan, 0)``.

    The lift of ``0 * w`` fills with such a switch, which is NaN where ``w`` is not finite.
    """
    values = map(value_of, filled.entries)
    conditions = [(isnan(value) | isinf(value)).any() for value in values]
    if fill_value(filled.fill) != 0:
        is_nan = _is_nan_or_zero(filled.fill)
        if is_nan is None:
            return None
        conditions.append(is_nan.any())
    return reduce(or_, conditions)


def _is_nan_or_zero(x: TensorVariable) -> TensorVariable | None:
    """Return ``c`` if ``x`` is ``switch(c, nan, 0)``."""
    if not (branches := operands(x, ps.Switch)):
        return None
    condition, *values = branches
    true, false = map(fill_value, values)
    return condition if true is not None and np.isnan(true) and false == 0 else None
