"""Logp and gradient of a model as functions of the raveled point: compiled here, or by :func:`~pymc_fastlogp.compile_pymc_model`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_fastlogp.config import switched

if TYPE_CHECKING:
    import pymc as pm
    from pytensor.compile.mode import Mode

    from pymc_fastlogp.compilation.nutpie_model import CompiledModel

# Function from a raveled point to logp and its gradient, in one vector of float64.
LogpDlogp = Callable[[np.ndarray], np.ndarray]

# SciPy's message for a matrix that is not finite.
NOT_FINITE = "array must not contain infs or NaNs"


def compile_logp_dlogp(
    model: "pm.Model",
    start: dict[str, np.ndarray],
    mode: "Mode | str",
    *,
    on: bool,
    order: Sequence[str] | None = None,
) -> LogpDlogp:
    """Compile logp and gradient, with the plugin on or off.

    ``order`` names the continuous value variables in the order of the point, by default that of the model.
    """
    values = {variable.name: variable for variable in model.value_vars}
    variables = None if order is None else [values[name] for name in order]
    # In the context of the model, since PyMC reads `check_bounds` of the open model.
    with switched(on), model:
        # Without an initial point PyMC would compile a function for it.
        function = model.logp_dlogp_function(
            variables, initial_point=start, ravel_inputs=True, mode=mode
        )
    function.set_extra_values(start)

    def logp_dlogp(x: np.ndarray) -> np.ndarray:
        try:
            with np.errstate(all="ignore"):
                logp, dlogp = function(x)
        except (ValueError, ZeroDivisionError, IndexError) as error:
            if not _is_of_the_point(error):
                raise
            return np.full(1 + x.size, -np.inf)
        return np.concatenate([[logp], dlogp], dtype=np.float64)

    return logp_dlogp


def _is_of_the_point(error: Exception) -> bool:
    """Return whether an error means that a sampler rejects the point, as for logp = -inf.

    Such errors are from

    - inverses and eigenvectors of singular matrices;
    - SciPy, for a matrix that is not finite (PyTensor appends the node to the message);
    - Numba, for a division by zero;
    - an index out of range.
    """
    if isinstance(error, np.linalg.LinAlgError | ZeroDivisionError | IndexError):
        return True
    return str(error).startswith(NOT_FINITE)


def logp_dlogp_of(compiled: "CompiledModel", model: "pm.Model") -> LogpDlogp:
    """Return logp and gradient of a compiled model as a function, as :func:`compile_logp_dlogp` does."""
    names = [variable.name for variable in model.value_vars]
    if not hasattr(compiled, "logp_dlogp"):
        raise TypeError(
            "verify cannot evaluate a model compiled by nutpie: pass the result of pymc_fastlogp.compile_pymc_model,"
            " with the plugin switched on."
        )
    # A model with linear coordinates for the sampler is compared in the model's own coordinates.
    original: Any = getattr(compiled, "original", compiled)
    own_names, slices, _ = original.shape_info
    slice_of = dict(zip(own_names[: len(names)], slices, strict=False))
    if slice_of.keys() != {*names}:
        raise ValueError(
            f"the compiled model has other variables than {', '.join(names)}: pass the model that was compiled,"
            " for a reparametrized one pymc_fastlogp.reparametrize(model)."
        )
    # Freezing a model may change the order of its variables.
    places = np.concatenate([np.arange(original.n_dim)[slice_of[name]] for name in names])

    def logp_dlogp(x: np.ndarray) -> np.ndarray:
        own = np.empty(x.size)
        own[places] = x
        try:
            logp, dlogp = original.logp_dlogp(own)
        except ValueError:  # nutpie rejects the point, without upstream's error
            return np.full(1 + x.size, -np.inf)
        return np.concatenate([[logp], dlogp[places]])

    return logp_dlogp
