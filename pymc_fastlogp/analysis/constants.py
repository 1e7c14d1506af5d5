"""Fill values of variables, and broadcasting of constant data."""

import numpy as np
import pytensor.scalar as ps
from numpy.typing import ArrayLike
from pytensor.graph.basic import Constant
from pytensor.tensor.basic import get_underlying_scalar_constant_value
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.variable import TensorVariable


def fill_value(x: TensorVariable) -> np.ndarray | None:
    """Return the value, of shape ``()``, that every entry of ``x`` is known to have, None if there is no such value."""
    # Most queries are for inputs and results of functions. PyTensor answers them by raising an error, which is slow.
    while isinstance(x.owner_op, DimShuffle):
        x = x.owner.inputs[0]
    op = x.owner_op
    if op is None and not isinstance(x, Constant):
        return None
    if isinstance(op, Elemwise) and not isinstance(op.scalar_op, ps.Second):
        return None
    try:
        return get_underlying_scalar_constant_value(x, elemwise=False)
    except NotScalarConstantError:
        return None


def broadcast(*data: ArrayLike) -> list[np.ndarray]:
    """Return read-only views of one shape.

    ``np.broadcast_arrays`` returns writable views, and raises for an array that was made read-only after a view of it was taken.
    """
    shape = np.broadcast_shapes(*map(np.shape, data))
    return [np.broadcast_to(x, shape) for x in data]
