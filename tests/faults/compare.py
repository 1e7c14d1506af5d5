"""Log density and gradient of a model with the plugin, compiled in two ways, and without it."""

from collections.abc import Callable

import numpy as np
import pymc as pm
from pytensor.compile.mode import Mode
from pytensor.configdefaults import config

import pymc_fastlogp
from pymc_fastlogp import disabled

PYTHON = Mode("py", None)

Make = Callable[[], pm.Model]


def logp_and_gradient(model: pm.Model, mode: Mode | str = "NUMBA") -> tuple[float, np.ndarray]:
    """Return logp and gradient at a point, entries by the order of value variables."""
    function = model.logp_dlogp_function(ravel_inputs=True, mode=mode)
    function.set_extra_values({})
    size = sum(value.size for value in model.initial_point().values())
    logp, gradient = function(np.linspace(-0.5, 0.5, size))
    return float(logp), np.asarray(gradient)


def directly(model: pm.Model) -> tuple[float, np.ndarray]:
    """Return the same from what samplers get, whose variables may be in another order."""
    compiled = pymc_fastlogp.compile_pymc_model(model)
    # Not by `initial_point`, which compiles: in several threads at once that is not safe upstream.
    sizes = {value.name: int(np.prod(value.type.shape)) for value in model.value_vars}
    ends = dict(zip(sizes, np.cumsum([*sizes.values()]), strict=True))
    point = np.linspace(-0.5, 0.5, sum(sizes.values()))
    at = {name: np.arange(ends[name] - size, ends[name]) for name, size in sizes.items()}
    names, slices, _ = compiled.shape_info
    order = np.empty(compiled.n_dim, dtype=int)
    for name, where in zip(names, slices, strict=True):
        if name in at:
            order[where] = at[name]
    logp, gradient = compiled.logp_dlogp(point[order])
    original = np.empty_like(gradient)
    original[order] = gradient
    return logp, original


def assert_as_upstream(make: Make, mode: Mode | str = PYTHON, rtol: float = 1e-10) -> None:
    """Compare both ways to compile a model with upstream."""
    # PyTensor fails to fold a sum of more than 32 constants, which leaves the sum as it is.
    with disabled(), config.change_flags(on_opt_error="warn"):
        logp, gradient = logp_and_gradient(make(), mode)
    for found, found_gradient in (logp_and_gradient(make()), directly(make())):
        np.testing.assert_allclose(found, logp, rtol=rtol)
        finite = np.isfinite(gradient)
        scale = np.abs(gradient[finite]).max(initial=1.0)
        if np.isfinite(logp):
            finite = slice(None)
        else:
            # Sums of inf and -inf: upstream's own two codes have nan here and -inf there.
            assert not np.isfinite(found_gradient[~finite]).any()
        expected, value = gradient[finite], found_gradient[finite]
        np.testing.assert_allclose(value, expected, rtol=rtol, atol=rtol * scale)
