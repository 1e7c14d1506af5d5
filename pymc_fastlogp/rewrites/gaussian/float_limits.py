"""Rounding and range of the float dtype in which squares are summed.

The factorization uses double precision. Centers and shares are rounded before dependent numbers are computed, so they
are exact in the dtype of the sum.
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
        """Number of bits that leaves room for an exact addition."""
        return int(np.finfo(self.dtype).nmant) + 1 - SPARE_BITS

    def rounded(self, x: np.ndarray) -> np.ndarray:
        """Round to the dtype, as float64."""
        with np.errstate(over="ignore"):
            return x.astype(self.dtype).astype("float64")

    def towards_zero(self, x: np.ndarray) -> np.ndarray:
        """Return the next numbers of the dtype towards zero."""
        return np.nextafter(x.astype(self.dtype), np.zeros(1, self.dtype)).astype("float64")

    def has_squares_of(self, joint: np.ndarray) -> bool:
        """Return whether the squares of triangles and targets, shape ``(n, k + 1, k + 1)``, neither overflow nor underflow.

        Underflow of covariates does not matter if targets do not underflow.
        """
        info = np.finfo(self.dtype)
        targets = np.abs(joint[:, :, -1]).max(axis=1)
        is_large_enough = (targets == 0) | (targets > MARGIN * np.sqrt(float(info.tiny)))
        is_small_enough = np.abs(joint).max() < np.sqrt(float(info.max)) / MARGIN
        return bool(is_small_enough and is_large_enough.all())
