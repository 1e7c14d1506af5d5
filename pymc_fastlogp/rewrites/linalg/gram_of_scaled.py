r"""Scale the factor instead of the matrix below a Cholesky factorization.

.. code::

    cholesky(s[:, None] * (L @ L.T) * s)      ->  cholesky(M @ M.T),  M = s[:, None] * L
    cholesky((L @ L.T) / (s[:, None] * s))    ->  cholesky(M @ M.T),  M = L / s[:, None]

A covariance from correlations and standard deviations, ``pt.diag(sd) @ corr @ pt.diag(sd)``, has this form.
:math:`\operatorname{diag}(s) L L^\top \operatorname{diag}(s) = M M^\top` for ``s`` of any sign. If ``M`` is lower triangular,
:mod:`~pymc_fastlogp.rewrites.linalg.cholesky_of_gram` then removes product and factorization.

The ``corr`` of ``LKJCholeskyCov`` is itself a divided product, whose divisor may cancel a scale. So the rule counts the powers
of each vector. As in PyTensor's own rules, a scale of zero or infinity divided by itself is one.

When it applies
---------------
To a product of one ``L @ L.T`` and of vectors that multiply or divide rows and columns equally often. The matrix may have
leading axes of length one.

When it refuses
---------------
Other factors, different scales for rows and columns, a matrix with another reader.
"""

from collections import Counter

import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import ExtractDiag, atleast_Nd
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.rewriting.blockwise import blockwise_of
from pytensor.tensor.rewriting.subtensor_lift import local_extract_diag_of_alloc_diag
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.algebra import count_leaves, flatten_product
from pymc_fastlogp.rewrites.linalg.cholesky_of_gram import root_of_gram, without_leading_axes
from pymc_fastlogp.rewrites.replacement import replacement

COLUMN, ROW = (0, "x"), ("x", 0)

# Bound on the expanded factors, which grow exponentially in nested products such as `u * u`.
MOST_FACTORS = 256


@node_rewriter([blockwise_of(Cholesky)])
def local_gram_of_scaled(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``cholesky(s[:, None] * (L @ L.T) * s) -> cholesky(M @ M.T)``."""
    [product], [out] = node.inputs, node.outputs
    if not all(product.type.broadcastable[:-2]) or len(fgraph.clients[product]) > 1:
        return None
    if count_leaves(product, ps.Mul, ps.TrueDiv) > MOST_FACTORS:
        return None
    roots: list[TensorVariable] = []
    powers: dict[tuple, Counter[TensorVariable]] = {COLUMN: Counter(), ROW: Counter()}
    for factor, is_inverse in flatten_product(product):
        power = -1 if is_inverse else 1
        root = root_of_gram(without_leading_axes(factor))
        if root is not None and power == 1 and root.type.dtype in float_dtypes:
            roots.append(root)
        elif (scale := _scale(factor)) is not None:
            vector, order = scale
            powers[order][vector] += power
        else:
            return None
    if len(roots) != 1 or powers[ROW] != powers[COLUMN] or not powers[ROW]:
        return None
    [scaled] = roots
    for vector, power in powers[ROW].items():
        for _ in range(abs(power)):
            scaled = scaled * vector[:, None] if power > 0 else scaled / vector[:, None]
    return replacement(out, node.op(atleast_Nd(scaled @ scaled.T, n=product.type.ndim)))


def _scale(x: TensorVariable) -> tuple[TensorVariable, tuple] | None:
    """Return the vector and the axis order, if ``x`` is a vector as a column or a row."""
    if not isinstance(x.owner_op, DimShuffle) or x.owner.inputs[0].type.ndim != 1:
        return None
    [vector], order = x.owner.inputs, x.owner.op.new_order[-2:]
    if order not in (COLUMN, ROW):
        return None
    if isinstance(vector.owner_op, ExtractDiag):
        [vector] = local_extract_diag_of_alloc_diag.transform(None, vector.owner) or [vector]
    return vector, order
