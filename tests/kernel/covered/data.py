"""Numbers for cases."""

import numpy as np

_random = np.random.default_rng(20261121)


def reals(*shape: int, dtype: str = "float64") -> np.ndarray:
    """Return normal numbers."""
    return np.asarray(_random.normal(size=shape), dtype)


def positive(*shape: int) -> np.ndarray:
    """Return numbers between one half and two."""
    return np.asarray(np.exp2(_random.uniform(-1, 1, size=shape)))


def integers(*shape: int, low: int = -9, high: int = 9, dtype: str = "int64") -> np.ndarray:
    """Return integers, the last one not among them."""
    return _random.integers(low, high, size=shape).astype(dtype)


def booleans(*shape: int) -> np.ndarray:
    """Return both."""
    return _random.random(size=shape) < 0.5
