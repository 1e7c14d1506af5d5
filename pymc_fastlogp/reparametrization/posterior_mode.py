"""Approximate mode of a log density by L-BFGS."""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Array = NDArray[np.float64]
Density = Callable[[Array], tuple[float, Array]]


def find_mode(logp_dlogp: Density, x: Array, n_steps: int) -> Array:
    """Return the point that L-BFGS reaches.

    Parameters
    ----------
    logp_dlogp : callable
        Function that returns the log density and its gradient, or raises ValueError where they are undefined.
    x : ndarray, shape (n,)
        Initial point.
    n_steps : int
        Largest number of steps.
    """
    # Import SciPy before limiting threads, so that its BLAS is limited, too.
    from scipy.optimize import minimize

    def cost(x: Array) -> tuple[float, Array]:
        try:
            logp, gradient = logp_dlogp(x)
        except ValueError:  # a check of the model fails far from the mode
            return np.inf, np.zeros_like(x)
        if not (np.isfinite(logp) and np.isfinite(gradient).all()):
            return np.inf, np.zeros_like(x)
        return -logp, -gradient

    options = {"maxiter": n_steps}
    # Vectors are short, so a second BLAS thread would only spin.
    with _libraries().limit(limits=1, user_api="blas"):
        found = minimize(cost, x, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x)


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
