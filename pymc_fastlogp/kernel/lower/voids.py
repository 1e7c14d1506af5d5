"""Where an array is known to hold zero, or nan: the other half of a triangle.

A triangle is a vector that is set into zeros at constant positions, perhaps transposed or scaled by rows. What multiplies
a zero leaves it zero, unless it is infinite or nan itself. So the entries are called void, not zero.
"""

from math import prod

import numpy as np
import pytensor.scalar as ps
from numpy.typing import NDArray
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor

from pymc_fastlogp.rewrites.vector_reads import chosen


def voids(x: Variable, most: int) -> NDArray[np.bool_] | None:
    """Return which entries are void, None of an array of open length or of more than ``most`` entries."""
    shape = x.type.shape
    if None in shape or prod(shape) > most:
        return None
    if isinstance(x, Constant):
        return x.data == 0
    if x.owner is None:
        return np.zeros(shape, dtype=bool)
    op, inputs = x.owner.op, x.owner.inputs
    if isinstance(op, IncSubtensor | AdvancedIncSubtensor):
        return _beside(chosen(shape, op.idx_list, inputs[2:]), voids(inputs[0], most))
    is_product = isinstance(op, Elemwise) and isinstance(op.scalar_op, ps.Mul)
    if not is_product and not isinstance(op, DimShuffle | Alloc):
        return np.zeros(shape, dtype=bool)
    factors = [voids(factor, most) for factor in (inputs if is_product else inputs[:1])]
    known = [factor for factor in factors if factor is not None]
    if isinstance(op, DimShuffle):
        known = [factor.transpose(op.shuffle + op.drop).reshape(shape) for factor in known]
    # Nothing may be known of any factor: what an Alloc repeats may be of open length.
    nothing = np.zeros(shape, dtype=bool)
    return np.logical_or.reduce([nothing, *(np.broadcast_to(factor, shape) for factor in known)])


def _beside(written: NDArray | None, before: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """Return which entries were void before and are not written."""
    if written is None or before is None:
        return None
    after = before.copy()
    after.flat[written.ravel()] = False
    return after
