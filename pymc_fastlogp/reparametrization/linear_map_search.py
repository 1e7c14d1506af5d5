"""Search for the linear map of a model: choose its correlated parameters, at the mode, and check that a map helps.

The map itself is derived in :mod:`~pymc_fastlogp.reparametrization.linear_map`.
"""

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
from pytensor.graph.traversal import ancestors

from pymc_fastlogp.reparametrization.linear_map import Array, Indices, LinearMap, linear_map
from pymc_fastlogp.reparametrization.model_with_sites import find_effects
from pymc_fastlogp.reparametrization.posterior_mode import Density, find_mode

if TYPE_CHECKING:
    import pymc as pm

logger = logging.getLogger("pymc_fastlogp")

# Optimizer steps before each map, and number of rounds in mapped coordinates.
STEPS, ROUNDS = 160, 2
# Number of points at which the gradient is compared with that of the Gaussian approximation, and the largest median of relative differences.
# Regressions and item parameters are below this limit, and funnels above.
POINTS, MAX_MISMATCH = 8, 0.7
# Largest dimension of a mapped point, which is copied to the stack of a thread.
MAX_DIMENSION = 16_384


def find_linear_map(
    model: "pm.Model", compiled: Any, x: Array, effects: Collection[str] = ()
) -> LinearMap | None:
    """Find a linear map of correlated parameters, and log the result.

    Parameters
    ----------
    model : pymc.Model
        The model.
    compiled : CompiledModel
        The compiled model, with ``logp_dlogp``.
    x : ndarray, shape (n,)
        Initial point of the search for the mode.
    effects : collection of str
        Names of the variables with sites, whose residuals are nearly independent of all other variables.

    Returns
    -------
    LinearMap or None
        None if the condition number is small, or if a variable without site has a random mean or scale. The mode of such a density is not representative.
    """
    if compiled.n_dim > MAX_DIMENSION:
        return None
    dependent = [
        rv.name
        for rv in model.free_RVs
        if rv.name not in effects and _has_random_parameters(model, rv)
    ]
    if dependent:
        logger.info("no linear map: the prior of %s depends on other parameters", *dependent[:1])
        return None
    # Effects with sites have another distribution, and are not found again.
    if without_site := [*find_effects(model).kinds]:
        logger.info("no linear map: the effect %s has no site", *without_site[:1])
        return None
    # The search may visit points with a gradient that is not finite. Results are checked.
    with np.errstate(all="ignore"):
        try:
            found, ratio, x = _find_map_at_mode(
                compiled.logp_dlogp, x, *_variable_indices(model, compiled, effects)
            )
        except (ValueError, np.linalg.LinAlgError) as error:
            logger.info("no linear map: %s", error)
            return None
        if found is None or not np.isfinite(ratio):
            return None
        mismatch = _mismatch(compiled.logp_dlogp, found, x)
    if not mismatch <= MAX_MISMATCH:
        message = "no linear map: the posterior is not Gaussian, the relative error of its gradient is %.3g"
        logger.info(message, mismatch)
        return None
    sizes = (len(found.indices), len(found.dependents))
    message = (
        "%d parameters and %d dependent variables get linear coordinates: condition number %.3g"
    )
    logger.info(message, *sizes, ratio)
    return found


def _find_map_at_mode(
    logp_dlogp: Density, x: Array, own: list[Indices], others: list[Indices]
) -> tuple[LinearMap | None, float, Array]:
    """Return the map at the mode, the condition number, and the mode.

    Each round searches for the mode in the coordinates of the previous map, since the optimizer stalls on a narrow ridge.
    """

    def gradient(x: Array) -> Array:
        return logp_dlogp(x)[1]

    x = find_mode(logp_dlogp, x, STEPS)
    found, ratio = linear_map(gradient, x, own, others)
    for _ in range(ROUNDS):
        if found is None:
            break
        x = found.forward(find_mode(_in_coordinates(logp_dlogp, found), found.inverse(x), STEPS))
        found, ratio = linear_map(gradient, x, own, others)
    return found, ratio, x


def _mismatch(logp_dlogp: Density, linear_map: LinearMap, mode: Array) -> float:
    """Return the median relative difference between the gradients of the density and of its Gaussian approximation, at points drawn from the approximation.

    In units of standard deviations, the gradient of a Gaussian at distance ``d`` from its mode is ``-d``.
    """
    of_w, center = _in_coordinates(logp_dlogp, linear_map), linear_map.inverse(mode)
    rng, found = np.random.default_rng(0), []
    for _ in range(POINTS):
        distance = rng.normal(size=len(linear_map.indices))
        w = center.copy()
        w[linear_map.indices] += distance
        try:
            _, gradient = of_w(w)
        except ValueError:  # a check of the model fails far from the mode
            return np.inf
        difference = gradient[linear_map.indices] + distance
        found.append(np.linalg.norm(difference) / np.linalg.norm(distance))
    return float(np.median(found))


def _in_coordinates(logp_dlogp: Density, linear_map: LinearMap) -> Density:
    """Return the log density and its gradient as functions of ``w``."""

    def of_w(w: Array) -> tuple[float, Array]:
        logp, gradient = logp_dlogp(linear_map.forward(w))
        return logp, linear_map.gradient(gradient)

    return of_w


def _has_random_parameters(model: "pm.Model", rv: Any) -> bool:
    """Return whether the prior of a variable depends on other free variables."""
    others = {x for x in model.free_RVs if x is not rv}
    return any(x in others for x in ancestors(rv.owner.inputs, blockers=others))


def _variable_indices(
    model: "pm.Model", compiled: Any, effects: Collection[str]
) -> tuple[list[Indices], list[Indices]]:
    """Return the indices of variables in the unconstrained point: those without and those with sites."""
    names = {model.rvs_to_values[rv].name: rv.name for rv in model.free_RVs}
    own: list[Indices] = []
    others: list[Indices] = []
    for name, place in zip(*compiled.shape_info[:2], strict=True):
        if name in names and place.stop <= compiled.n_dim:
            (others if names[name] in effects else own).append(np.arange(place.start, place.stop))
    return own, others
