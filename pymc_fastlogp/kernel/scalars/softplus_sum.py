"""The sum of two softplus functions, which takes one logarithm instead of two."""

import numpy as np
from pytensor.scalar.basic import ScalarOp, upgrade_to_float


class SoftplusSum(ScalarOp):
    """softplus(x) + softplus(y)."""

    nin = 2

    def impl(self, x: float, y: float) -> float:
        """Return the sum."""
        return np.logaddexp(0.0, x) + np.logaddexp(0.0, y)


softplus_sum = SoftplusSum(upgrade_to_float, name="softplus_sum")
