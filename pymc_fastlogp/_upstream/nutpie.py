"""The C function in a model that nutpie has compiled with Numba."""

from typing import Any, NamedTuple


class Callback(NamedTuple):
    """``int64 f(uint64 n_dim, double *x, double *gradient, double *logp, void *user_data)``.

    Attributes
    ----------
    address : int
        Of the function.
    user_data : int
        Of what it takes as its last argument.
    n_dim : int
        Length of the unconstrained point.
    """

    address: int
    user_data: int
    n_dim: int


def callback_of(compiled: Any) -> Callback:
    """Return the callback of what ``nutpie.compile_pymc_model`` returned, which has to stay alive."""
    return Callback(
        compiled.compiled_logp_func.address, compiled.user_data.ctypes.data, int(compiled.n_dim)
    )
