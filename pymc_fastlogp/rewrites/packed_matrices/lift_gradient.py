r"""Gradient criterion of the lift in :mod:`~pymc_fastlogp.rewrites.packed_matrices.lift_set_subtensor`.

Let :math:`s = x[i].\mathrm{set}(c)` and :math:`g` the gradient of the result. Without the lift the gradient of :math:`x` is
:math:`(g\,f'(s))[i].\mathrm{set}(0)`, with the lift it is :math:`(g[i].\mathrm{set}(0))\,f'(x)`. At an overwritten entry the
second is :math:`0 \cdot f'(x_k)`, which is NaN where :math:`f'(x_k)` is not finite, as in ``log(x[x_is_zero].set(1))``. The
same holds for another operand ``w`` at overwritten entries of ``x``.

Before the gradient the lift therefore requires one of

- no gradient flows into an overwritten entry, because the entry is constant;
- :math:`f'` is finite whatever the entry holds (the tables below).

A value that a later set overwrites leaves no trace. After the gradient only the conditions on the value hold.
"""

import numpy as np
import pytensor.scalar as ps
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import operands
from pymc_fastlogp.analysis.scalar_facts import Trait, ops_where
from pymc_fastlogp.rewrites.packed_matrices.packed_array import Packed

# Derivatives that do not depend on the operands: finite even where an operand is infinite or NaN.
CONSTANT_DERIVATIVE = ops_where(lambda facts: Trait.CONSTANT_DERIVATIVE in facts.traits)

# f(constant, w) whose derivative by w is finite for every finite constant and every nonzero w.
FINITE_DERIVATIVE_BY_OTHERS = ops_where(
    lambda facts: Trait.FINITE_DERIVATIVE_BY_OTHERS in facts.traits
)


def gradient_is_the_same(
    node: Apply, operand: TensorVariable, others: list[TensorVariable], filled: Packed
) -> bool:
    """Return whether no overwritten entry can turn a zero gradient into NaN, and the gradient keeps its dtype."""
    scalar_op = node.op.scalar_op
    if _rounds_differently(operand.type.dtype, node.outputs[0].type.dtype):
        return False
    if isinstance(scalar_op, CONSTANT_DERIVATIVE):
        return True
    fill = fill_value(filled.fill)
    if fill is None and not _is_switch_between_constants(filled.fill):
        return False
    if all(isinstance(x, Constant) for x in others):
        return True
    # The lift writes 0 / x with a comparison, whose gradient in PyTensor is a zero of dtype floatX.
    variables = {x.type.dtype for x in others if not isinstance(x, Constant)}
    if variables & set(float_dtypes) - {config.floatX}:
        return False
    is_numerator = isinstance(scalar_op, ps.TrueDiv) and operand is node.inputs[0]
    is_finite = is_numerator or isinstance(scalar_op, FINITE_DERIVATIVE_BY_OTHERS)
    return is_finite and fill is not None and bool(np.isfinite(fill))


def _rounds_differently(dtype: str, out_dtype: str) -> bool:
    """Return whether a set casts the gradient between an output dtype and an input dtype.

    Between two floats the gradient is rounded to the input dtype. The gradient of an integer or boolean output is a zero of dtype
    ``floatX``.
    """
    if dtype not in float_dtypes or dtype == out_dtype:
        return False
    return out_dtype in float_dtypes or dtype != config.floatX


def _is_switch_between_constants(fill: TensorVariable) -> bool:
    """Return whether a fill is a switch between constants, as the lift of ``0 / w`` is. It has no gradient."""
    branches = operands(fill, ps.Switch)[1:]
    return bool(branches) and all(isinstance(branch, Constant) for branch in branches)
