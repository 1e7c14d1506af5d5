"""Rounding and range of the float dtype in which squares are summed.

The factorization of :mod:`~pymc_fastlogp.rewrites.gaussian.factor` uses double precision. Its centers, and the regression
coefficients (*shares*) of :mod:`~pymc_fastlogp.rewrites.gaussian.intercept`, are rounded to the dtype before other numbers are
computed from them. So they are exact in the dtype of the sum.
"""

from typing import NamedTuple

import numpy as np

# Spare bits for carries of a sum.
SPARE_BITS = 5
# Substitute for zero, relative to the norm of a covariate: the square is negligible in any sum.
TINY = {"float32": 1e-30, "float64": 1e-100}
# Factor by which parameters may exceed, or fall below, the values that fit the data before a square leaves the range.
MARGIN = 1e3


class FloatLimits(NamedTuple):
    """Rounding and range of a float dtype.

    Attributes
    ----------
    dtype : str
        ``float32`` or ``float64``.
    """

    dtype: str

    @property
    def tiny(self) -> float:
        """Substitute for a zero, relative to the norm of a covariate."""
        return TINY[self.dtype]

    @property
    def bits(self) -> int:
        """Number of significand bits, less the bits that are spared for the carries of a sum."""
        return int(np.finfo(self.dtype).nmant) + 1 - SPARE_BITS

    def rounded(self, x: np.ndarray) -> np.ndarray:
        """Round to the dtype, as float64."""
        with np.errstate(over="ignore"):
            return x.astype(self.dtype).astype("float64")

    def towards_zero(self, x: np.ndarray) -> np.ndarray:
        """Return the next number of the dtype towards zero, for each element of ``x``."""
        return np.nextafter(x.astype(self.dtype), np.zeros(1, self.dtype)).astype("float64")

    def has_squares_of(self, joint: np.ndarray) -> bool:
        """Return whether the squares of triangles neither overflow nor underflow.

        ``joint`` has the triangles of covariates and, in the last column, the target; shape ``(n, k + 1, k + 1)``. Underflow of covariates does not matter if targets do not underflow.
        """
        info = np.finfo(self.dtype)
        targets = np.abs(joint[:, :, -1]).max(axis=1)
        is_large_enough = (targets == 0) | (targets > MARGIN * np.sqrt(float(info.tiny)))
        is_small_enough = np.abs(joint).max() < np.sqrt(float(info.max)) / MARGIN
        return bool(is_small_enough and is_large_enough.all())
