"""What rewrites ask about constants."""

import numpy as np
from pytensor.tensor.basic import get_underlying_scalar_constant_value
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.variable import TensorVariable


def fill_value(x: TensorVariable) -> np.ndarray | None:
    """Return the one value, of shape ``()``, that every entry of ``x`` is known to hold, or None."""
    try:
        return get_underlying_scalar_constant_value(x, elemwise=False)
    except NotScalarConstantError:
        return None
