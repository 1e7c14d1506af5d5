"""What rewrites ask about constants."""

import numpy as np
from numpy.typing import ArrayLike
from pytensor.tensor.basic import get_underlying_scalar_constant_value
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.variable import TensorVariable


def fill_value(x: TensorVariable) -> np.ndarray | None:
    """Return the one value, of shape ``()``, that every entry of ``x`` is known to hold, or None."""
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
