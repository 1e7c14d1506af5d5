"""Callback of nutpie for a log density whose likelihood is on the workers of a cluster."""

import ctypes
import time
from typing import TYPE_CHECKING

import numpy as np

from pymc_fastlogp.callbacks.native import BAD_GRADIENT, BAD_LOGP, RAISED
from pymc_fastlogp.compilation.loading import HAS_VALUES, LOGP_TYPE

if TYPE_CHECKING:
    from pymc_fastlogp._upstream.nutpie_library import SampledModel
    from pymc_fastlogp.sampling.cluster.sharded_likelihood import ShardedLikelihood

# Seconds that an evaluation takes after an error, so that the sampler is stopped before its chains draw many times.
PAUSE = 0.2


class LogpOnCluster:
    """Sum of the log density of a model and of the log likelihood on the workers.

    Parameters
    ----------
    model : SampledModel
        The model without the likelihood.
    likelihood : ShardedLikelihood
        The likelihood.

    Attributes
    ----------
    model : SampledModel
        The model with the likelihood.
    error : Exception, optional
        The error that ended the evaluations.
    """

    def __init__(self, model: "SampledModel", likelihood: "ShardedLikelihood"):
        self.error: Exception | None = None
        self._likelihood = likelihood
        self._prior, self._user_data = LOGP_TYPE(model.logp), model.user_data
        self._callback = LOGP_TYPE(self._evaluate)
        address = ctypes.cast(self._callback, ctypes.c_void_p).value
        assert address is not None
        alive = (self._callback, model.alive)
        self.model = model._replace(logp=address, alive=alive, is_stopped=self._is_stopped)

    def _is_stopped(self) -> bool:
        return self.error is not None

    def _evaluate(self, n_dim: int, x: int, gradient: int, logp: int, user_data: int) -> int:
        """Write logp and gradient, and return the status code. An exception would be lost here."""
        status = self._prior(n_dim, x, gradient, logp, self._user_data)
        if status not in HAS_VALUES:
            return status
        try:
            if self.error is not None:
                time.sleep(PAUSE)
                return RAISED
            likelihood = self._likelihood.evaluate(_array(x, n_dim).copy())
        except Exception as error:
            self.error = error
            return RAISED
        total, of_parameters = _array(logp, 1), _array(gradient, n_dim)
        total += likelihood[0]
        of_parameters += likelihood[1:]
        if not np.isfinite(total[0]):
            return BAD_LOGP
        return 0 if np.isfinite(of_parameters).all() else BAD_GRADIENT


def _array(address: int, length: int) -> np.ndarray:
    """Return the numbers at an address."""
    return np.ctypeslib.as_array((ctypes.c_double * length).from_address(address))
