"""Expressions that are zero or more, or nan, whatever their variables hold."""

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Constant
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.rewrites.constants import fill_value
from pymc_fastlogp.rewrites.set_chains import is_set, positions

NONNEGATIVE = (ps.Exp, ps.Sqr, ps.Abs, ps.Sqrt, ps.Sigmoid, ps.Softplus)
# Of operands that are not negative.
PRESERVE = (ps.Add, ps.Mul, ps.TrueDiv, ps.ScalarMaximum, ps.Identity)
VIEWS = (DimShuffle, Alloc, Subtensor, AdvancedSubtensor)


def is_nonnegative(x: TensorVariable) -> bool:
    """Whether no entry of ``x`` is below zero."""
    if isinstance(x, Constant):
        return bool((x.data >= 0).all())
    op = x.owner_op
    if isinstance(op, Elemwise):
        return _of_elemwise(op.scalar_op, x.owner.inputs)
    return isinstance(op, VIEWS) and is_nonnegative(x.owner.inputs[0])


def is_nonnegative_at(x: TensorVariable, where: np.ndarray) -> bool:
    """Whether no entry of ``x`` at these flat positions is below zero."""
    while where.size and is_set(x) and x.owner.op.set_instead_of_inc:
        written = positions(x.owner)
        if written is None:
            return False
        is_written = np.isin(where, written)
        if is_written.any() and not is_nonnegative(x.owner.inputs[1]):
            return False
        x, where = x.owner.inputs[0], where[~is_written]
    return not where.size or is_nonnegative(x)


def _of_elemwise(scalar_op: ps.ScalarOp, operands: list[TensorVariable]) -> bool:
    if isinstance(scalar_op, ps.Pow):
        return fill_value(operands[1]) in (0.5, 2)
    if isinstance(scalar_op, PRESERVE):
        return all(map(is_nonnegative, operands))
    return isinstance(scalar_op, NONNEGATIVE)
