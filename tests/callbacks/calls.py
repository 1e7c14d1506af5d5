"""Calls of the two C functions of a compiled model."""

import ctypes

import numpy as np

EXPAND_TYPE = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_uint64, ctypes.c_uint64, *[ctypes.c_void_p] * 3
)
LOGP_TYPE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64, *[ctypes.c_void_p] * 4)


def logp(compiled, x, n_dim=None):
    """Return status, logp and gradient of a compiled model."""
    gradient, value = np.full(len(x), 7.0), np.full(1, 7.0)
    function = LOGP_TYPE(compiled.compiled_logp_func.address)
    pointers = [a.ctypes.data for a in (x, gradient, value, compiled.user_data)]
    return function(len(x) if n_dim is None else n_dim, *pointers), value[0], gradient


def expand(compiled, x, n_expanded=None):
    """Return status and stored values of a compiled model."""
    values = np.full(compiled.n_expanded, 7.0)
    function = EXPAND_TYPE(compiled.compiled_expand_func.address)
    n = compiled.n_expanded if n_expanded is None else n_expanded
    pointers = [a.ctypes.data for a in (x, values, compiled.user_data)]
    return function(len(x), n, *pointers), values


def points(compiled, n=5):
    return [compiled.initial_point_func(seed) for seed in range(n)]
