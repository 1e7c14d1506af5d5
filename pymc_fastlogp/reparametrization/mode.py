"""The mode of a log density, or a point on the way there."""

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
        The log density and its gradient; it may raise ValueError where there is none.
    x : ndarray, shape (n,)
        Where to begin.
    n_steps : int
        After how many steps to stop at the latest.
    """
    # Imported first, so that its BLAS is among those that are limited.
    from scipy.optimize import minimize

    def cost(x: Array) -> tuple[float, Array]:
        try:
            logp, gradient = logp_dlogp(x)
        except ValueError:  # a check of the model, as at any point that is too far away
            return np.inf, np.zeros_like(x)
        if not (np.isfinite(logp) and np.isfinite(gradient).all()):
            return np.inf, np.zeros_like(x)
        return -logp, -gradient

    options = {"maxiter": n_steps}
    # Vectors of some hundred numbers: a second thread has nothing to do but to wait, busily.
    with _libraries().limit(limits=1, user_api="blas"):
        found = minimize(cost, x, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x)


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
