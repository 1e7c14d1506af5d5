"""Predicates and values of constant variables."""

import numpy as np
import pytensor.scalar as ps
from numpy.typing import ArrayLike
from pytensor.graph.basic import Constant
from pytensor.tensor.basic import get_underlying_scalar_constant_value
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.variable import TensorVariable


def fill_value(x: TensorVariable) -> np.ndarray | None:
    """Return the one value, of shape ``()``, that every entry of ``x`` is known to hold, or None."""
    # Asked of inputs and of what functions return most of the time, of which PyTensor says no by raising an error.
    while isinstance(x.owner_op, DimShuffle):
        x = x.owner.inputs[0]
    made_by = x.owner_op
    if made_by is None and not isinstance(x, Constant):
        return None
    if isinstance(made_by, Elemwise) and not isinstance(made_by.scalar_op, ps.Second):
        return None
    try:
        return get_underlying_scalar_constant_value(x, elemwise=False)
    except NotScalarConstantError:
        return None


def broadcast(*data: ArrayLike) -> list[np.ndarray]:
    """Return views of one shape, which can't be written to.

    ``np.broadcast_arrays`` wants to return what can be written to, and raises where an array was made read-only after a view of it was taken.
    """
    shape = np.broadcast_shapes(*map(np.shape, data))
    return [np.broadcast_to(x, shape) for x in data]
