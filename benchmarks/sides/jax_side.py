"""JAX on one core, as ``nutpie.compile_pymc_model(backend="jax")`` would use it, with the plugin off or on.

The evaluations run in a ``lax.fori_loop``, so no Python is between them. Each starts from the
previous gradient, times 1e-300, so XLA cannot take any of them out of the loop.
"""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
from numpy.typing import NDArray
from nutpie.compile_pymc import _make_functions  # what nutpie's own JAX backend compiles from
from pymc.model.transform.optimization import freeze_dims_and_data

from benchmarks.sides import Reference, Variant
from pymc_fastlogp.benchmarking.clock import seconds_now
from pymc_fastlogp.benchmarking.native import Timer
from pymc_fastlogp.benchmarking.run import Evaluate, check_agreement
from pymc_fastlogp.config import switched

if TYPE_CHECKING:
    from benchmarks.suite import Case

INVISIBLE = 1e-300


def gradient_by_pytensor(case: "Case", model: pm.Model, reference: Reference) -> Variant:
    """Let PyTensor derive the gradient; the default of nutpie."""
    return _gradient_by_pytensor(model, reference, on=False)


def gradient_by_jax(case: "Case", model: pm.Model, reference: Reference) -> Variant:
    """Let JAX derive the gradient."""
    return _gradient_by_jax(model, reference, on=False)


def rewritten_gradient_by_pytensor(case: "Case", model: pm.Model, reference: Reference) -> Variant:
    """Let PyTensor derive the gradient, with the plugin on."""
    return _gradient_by_pytensor(model, reference, on=True)


def rewritten_gradient_by_jax(case: "Case", model: pm.Model, reference: Reference) -> Variant:
    """Let JAX derive the gradient, with the plugin on."""
    return _gradient_by_jax(model, reference, on=True)


def _gradient_by_pytensor(model: pm.Model, reference: Reference, *, on: bool) -> Variant:
    function = _jax_function(model, compute_grad=True, on=on)
    return _variant("gradient by PyTensor", function, reference)


def _gradient_by_jax(model: pm.Model, reference: Reference, *, on: bool) -> Variant:
    logp = _jax_function(model, compute_grad=False, on=on)
    function = jax.jit(jax.value_and_grad(lambda x: logp(x)[0]))
    return _variant("gradient by JAX", function, reference)


def _jax_function(model: pm.Model, *, compute_grad: bool, on: bool) -> "jax.stages.Wrapped":
    with switched(on):
        _, _, function, *_ = _make_functions(
            freeze_dims_and_data(model),
            mode="JAX",
            compute_grad=compute_grad,
            join_expanded=False,
            pymc_initial_point_fn=model.initial_point,
        )
    return function.vm.jit_fn


def _variant(
    note: str,
    function: "jax.stages.Wrapped",
    reference: Reference,
) -> Variant:
    check_agreement(_evaluate(function), reference.callback.evaluate, reference.points)
    return Variant(note, _timer(function, reference.points))


def _evaluate(function: "jax.stages.Wrapped") -> Evaluate:
    def evaluate(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        logp, gradient = function(jnp.asarray(x))
        return float(logp), np.asarray(gradient)

    return evaluate


def _timer(function: "jax.stages.Wrapped", points: NDArray[np.float64]) -> Timer:
    @jax.jit
    def repeat(n: jax.Array, points: jax.Array) -> jax.Array:
        def step(i: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            total, gradient = state
            logp, gradient = function(points[i % len(points)] + INVISIBLE * gradient)
            return total + logp, gradient

        start = (jnp.zeros(()), jnp.zeros(points.shape[1]))
        return jax.lax.fori_loop(0, n, step, start)[0]

    rows = jnp.asarray(points)

    def seconds(n: int) -> float:
        start = seconds_now()
        total = repeat(n, rows).block_until_ready()
        elapsed = seconds_now() - start
        if not np.isfinite(total):
            raise FloatingPointError("a timed evaluation by JAX is not finite")
        return elapsed

    seconds(1)  # compiles
    return seconds
