"""Triangles of an array that are known to hold zeros, or nan.

A triangle is a vector that is set into zeros at constant positions, perhaps transposed or scaled by rows. What multiplies
a zero leaves it zero, unless it is infinite or nan itself. So the entries are called void, not zero.
"""

from functools import cache

import numpy as np
import pytensor.scalar as ps
from numpy.typing import NDArray
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import Elemwise

from pymc_fastlogp.analysis.provenance import provenance


def voids(x: Variable, most: int) -> NDArray[np.bool_] | None:
    """Return which entries are void, None of an array of open length or of more than ``most`` entries."""

    @cache
    def voids_of(x: Variable) -> NDArray[np.bool_] | None:
        found = provenance(x, most)
        if found is None:
            return None
        is_void = found.codes == 0
        for leaf, which, where in found.entries():
            if isinstance(leaf.owner_op, Elemwise) and isinstance(leaf.owner_op.scalar_op, ps.Mul):
                is_void.flat[where] = of_product(leaf).flat[which]
        return is_void

    def of_product(x: Variable) -> NDArray[np.bool_]:
        is_void = np.zeros(x.type.shape, dtype=bool)
        for factor in map(voids_of, x.owner.inputs):
            is_void |= False if factor is None else factor
        return is_void

    return voids_of(x)
