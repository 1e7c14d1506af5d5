r"""Take the logarithm of the scale, not of every row, after the gradient.

.. code::

    log(a * exp(x))  ->  log(a) + x    where m = a * exp(x) is neither 0 nor inf nor nan
                         log(m)        elsewhere, which is -inf, inf or nan

where ``a`` has fewer entries than the product. PyMC's negative binomial writes its mean as ``alpha * exp(x)``, and the
logarithm of it in its Poisson limit. The product stays, for what else reads it and for its limits: where it under- or
overflows, the logarithm is infinite as upstream has it, so that what is infinite or nan stays so. Negative ``a`` gives
nan on both sides.

Between the limits the sum is off by at most :math:`\epsilon (|\log a| + |x|)`, which is below 1e-12, the
logarithm of the product by :math:`\epsilon` and the relative rounding of the product.
"""

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.math import add, cast, eq, log, lt, mul, switch
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.elemwise import is_made_by, operand, operands


@node_rewriter([log])
def local_log_of_scaled_exp(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``log(a * exp(x)) -> log(a) + x``, but for the infinite results."""
    [product], [out] = node.inputs, node.outputs
    if product.type != out.type or out.type.dtype not in float_dtypes:
        return None
    factors = operands(product, ps.Mul)
    exponents = [x for factor in factors if (x := operand(factor, ps.Exp)) is not None]
    # The product has its dtype from all factors: of integers alone it may overflow, and their logarithm is a float32.
    scales = [cast(x, out.type.dtype) for x in factors if not is_made_by(x, ps.Exp)]
    if not exponents or not scales:
        return None
    scale = scales[0] if len(scales) == 1 else mul(*scales)
    if not _is_smaller(scale, product):
        return None
    finite = add(log(scale), *exponents)
    infinity = np.array(np.inf, dtype=out.type.dtype)
    logarithm = switch(eq(product, 0), -infinity, switch(lt(product, infinity), finite, product))
    if not out.type.is_super(logarithm.type):
        return None
    copy_stack_trace(out, logarithm)
    return [logarithm]


def _is_smaller(x: TensorVariable, y: TensorVariable) -> bool:
    """Whether ``x`` is repeated along an axis of ``y``, which has the same number of axes."""
    axes = zip(x.type.broadcastable, y.type.broadcastable, strict=True)
    return any(x_repeats and not y_repeats for x_repeats, y_repeats in axes)
