r"""``log(a * exp(x) * s) -> log(a) + x + log(s)``: take no logarithm of what is known to be a product.

.. code::

    log(a * exp(x) / s)       ->  log(a) + x - log(s)
    log(a * exp(v)[g])        ->  log(a) + v[g]
    log((r * s)[g])           ->  (log(r) + log(s))[g]

``a`` is a constant, ``s`` has fewer entries than the product, and no factor is below zero. So a rate
:math:`\mu_{ik} = e_{ik} f_i \lambda_k` has :math:`\log\mu_{ik} = \log e_{ik} + \log f_i + \log\lambda_k`, without a logarithm of an
entry, and the sum over rows :math:`\sum y_{ik} \log\mu_{ik}` falls into sums over :math:`i` and :math:`k` alone.

Both sides are :math:`-\infty` where a factor is zero, :math:`\infty` where one is infinite and nan for :math:`0 \cdot \infty` or nan.
They part where no factor is at a limit but the product is: where it underflows or overflows, the right side is finite, and right. Elsewhere it
is off by at most :math:`\epsilon \sum |\log f|` over its factors :math:`f`, where the left one has the rounding of the product.
"""

from functools import reduce

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import constant
from pytensor.tensor.math import add, log, sub
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.elemwise import is_made_by, operand, scalar_op
from pymc_fastlogp.analysis.gathers import MOVES
from pymc_fastlogp.analysis.ranges import is_nonnegative


@node_rewriter([log])
def local_log_of_product(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``log(a * exp(x) * s) -> log(a) + x + log(s)``."""
    [x], [out] = node.inputs, node.outputs
    if x.type.dtype != out.type.dtype or out.type.dtype not in float_dtypes or not _is_product(x):
        return None
    logarithm = _logarithm(x, out)
    if logarithm is None or not out.type.is_super(logarithm.type):
        return None
    copy_stack_trace(out, logarithm)
    return [logarithm]


def _is_product(x: TensorVariable) -> bool:
    """Whether ``x`` is a product or quotient, or entries of one."""
    while isinstance(x.owner_op, MOVES):
        x = x.owner.inputs[0]
    return is_made_by(x, ps.Mul, ps.TrueDiv)


def _logarithm(x: TensorVariable, out: TensorVariable) -> TensorVariable | None:
    """Return the logarithm of ``x`` without one of as many entries as ``out``; None if there is none, or a sign is not known."""
    if (exponent := operand(x, ps.Exp)) is not None:
        return exponent
    if isinstance(x, TensorConstant):
        return _of_constant(x, out.type.dtype)
    if isinstance(x.owner_op, MOVES):
        moved = _logarithm(x.owner.inputs[0], out)
        return None if moved is None else x.owner.op(moved, *x.owner.inputs[1:])
    combine = {ps.Mul: add, ps.TrueDiv: sub}.get(type(scalar_op(x)))
    if combine is not None:
        parts = [_logarithm(factor, out) for factor in x.owner.inputs]
        return None if None in parts else reduce(combine, parts)
    is_own = x.type.dtype == out.type.dtype and _is_smaller(x, out) and is_nonnegative(x)
    return log(x) if is_own else None


def _of_constant(x: TensorConstant, dtype: str) -> TensorVariable | None:
    with np.errstate(divide="ignore"):
        return constant(np.log(x.data, dtype=dtype)) if (x.data >= 0).all() else None


def _is_smaller(x: TensorVariable, out: TensorVariable) -> bool:
    """Whether ``x`` is known to have fewer entries than ``out``: half at most."""
    if None in x.type.shape or None in out.type.shape:
        return False
    return 2 * np.prod(x.type.shape, dtype=int) <= np.prod(out.type.shape, dtype=int)
