"""The competitors of the plugin, and JAX with it. Each side is a table row: its name and the ways to build it.

A builder gets the case, its model and the reference; it returns a :class:`Variant` that is
checked and ready to be timed, or None if the side does not exist for the case. Of several variants the fastest is the one that competes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pymc_fastlogp.benchmarking.native import LogpCallback, Timer

if TYPE_CHECKING:
    from benchmarks.gallery.registry import Entry
    from benchmarks.suite import Case

# Long enough to tell the variants of a side apart.
TRIAL_SECONDS = 0.05


class Variant(NamedTuple):
    """One way to run a side: its note in the table, and its timer."""

    note: str
    timer: Timer


@dataclass(frozen=True)
class Reference:
    """Results and points of the side with the plugin off.

    Parameters
    ----------
    callback : LogpCallback
        From ``nutpie.compile_pymc_model``.
    points : ndarray, shape (n_points, n_dim)
        Points of finite logp, coordinates as nutpie orders them.
    order : ndarray of int, shape (n_dim,)
        ``point[order]`` has the parameters as the model declares them: freezing a model's
        data, which nutpie does first, turns the order of its variables round.
    """

    callback: LogpCallback
    points: NDArray[np.float64]
    order: NDArray[np.intp]

    @classmethod
    def of(
        cls, model: pm.Model, callback: LogpCallback, points: NDArray[np.float64]
    ) -> "Reference":
        """Find out the order of the parameters."""
        names, slices, _ = callback.owner.shape_info
        position = dict(zip(names, slices))
        declared = [position[model.rvs_to_values[variable].name] for variable in model.free_RVs]
        return cls(callback, points, np.r_[tuple(declared)])

    @property
    def declared_points(self) -> NDArray[np.float64]:
        """The points with the parameters in the order of the model."""
        return self.points[:, self.order]

    def evaluate_declared(self, declared: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return logp and gradient with the parameters in the order of the model."""
        point = np.empty_like(declared)
        point[self.order] = declared
        logp, gradient = self.callback.evaluate(point)
        return logp, gradient[self.order]


Builder = Callable[["Case", pm.Model, Reference], Variant | None]


# Module and functions of each side. Imported one by one: a package may be missing.
SIDES: dict[str, tuple[str, tuple[str, ...]]] = {
    # Before JAX: where the CPU has AMX, XLA asks the kernel for larger signal stacks, and the
    # OCaml runtime of the Stan compiler aborts if it starts after that.
    "stan": ("benchmarks.sides.stan_side", ("default_math", "fast_math")),
    "jax": ("benchmarks.sides.jax_side", ("gradient_by_pytensor", "gradient_by_jax")),
    "jax_on": (
        "benchmarks.sides.jax_side",
        ("rewritten_gradient_by_pytensor", "rewritten_gradient_by_jax"),
    ),
    "ceiling": ("benchmarks.sides.ceiling_side", ("vector_ir",)),
}


def fastest(
    side: str, case: "Case | Entry", model: pm.Model, reference: Reference
) -> Variant | None:
    """Build all variants of a side and return the fastest, or None if the side does not exist.

    JAX needs the model alone, so that it exists for the gallery as well.

    Raises
    ------
    Exception
        That of the first builder, if every one of them failed.
    """
    module_name, builder_names = SIDES[side]
    module = import_module(module_name)
    variants: list[Variant] = []
    errors: list[Exception] = []
    for name in builder_names:
        build: Builder = getattr(module, name)
        try:
            variant = build(case, model, reference)
        except Exception as error:
            errors.append(error)
            continue
        if variant is not None:
            variants.append(variant)
    if variants:
        return min(variants, key=lambda variant: _seconds_per_evaluation(variant.timer))
    if errors:
        raise errors[0]
    return None


def _seconds_per_evaluation(timer: Timer) -> float:
    timer(1)
    n = 1
    while (elapsed := timer(n)) < TRIAL_SECONDS:
        n *= 2
    return elapsed / n
