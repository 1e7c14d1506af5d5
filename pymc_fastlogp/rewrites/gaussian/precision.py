"""Range of numbers that rows of triangles may have in the precision in which their squares are summed.

All of them are computed in double precision. What is rounded before others are computed from it has no error in them: a center that
parameters are taken relative to, and shares of an intercept.
"""

from typing import NamedTuple

import numpy as np

# Bits that are left for a sum to carry over.
SPARE_BITS = 5
# Times the norm of a covariate: its square is lost beside any other.
TINY = {"float32": 1e-30, "float64": 1e-100}
# Parameters may be so many times larger, or smaller, than what makes the data fit before a square of them leaves the range.
MARGIN = 1e3


class Precision(NamedTuple):
    """That of a sum.

    Attributes
    ----------
    dtype : str
        ``float32`` or ``float64``.
    """

    dtype: str

    @property
    def tiny(self) -> float:
        """Substitute for a zero, relative to a covariate."""
        return TINY[self.dtype]

    @property
    def bits(self) -> int:
        """Bits of a number beside which another may be added without an error."""
        return int(np.finfo(self.dtype).nmant) + 1 - SPARE_BITS

    def rounded(self, x: np.ndarray) -> np.ndarray:
        """Return numbers that this precision has, as float64."""
        with np.errstate(over="ignore"):
            return x.astype(self.dtype).astype("float64")

    def towards_zero(self, x: np.ndarray) -> np.ndarray:
        """Return the next numbers of this precision, which ``x`` are, towards zero."""
        return np.nextafter(x.astype(self.dtype), np.zeros(1, self.dtype)).astype("float64")

    def has_squares_of(self, joint: np.ndarray) -> bool:
        """Return whether the squares of triangles and targets, shape ``(n, k + 1, k + 1)``, neither overflow nor vanish.

        That covariates vanish matters to nobody where targets do not.
        """
        limits = np.finfo(self.dtype)
        targets = np.abs(joint[:, :, -1]).max(axis=1)
        is_large_enough = (targets == 0) | (targets > MARGIN * np.sqrt(float(limits.tiny)))
        is_small_enough = np.abs(joint).max() < np.sqrt(float(limits.max)) / MARGIN
        return bool(is_small_enough and is_large_enough.all())
