"""Coordinates for the parameters of a model that are correlated given the data, such as coefficients of a regression: found by a pilot."""

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
from pytensor.graph.traversal import ancestors

from pymc_fastlogp.reparametrization.linear_map import Indices, LinearMap, linear_map
from pymc_fastlogp.reparametrization.mode import Array, Density, find_mode
from pymc_fastlogp.reparametrization.model_with_sites import find_effects

if TYPE_CHECKING:
    import pymc as pm

logger = logging.getLogger("pymc_fastlogp")

# Of the optimizer, before the derivatives are taken: at first, and in the coordinates of each round.
STEPS, ROUNDS = 160, 2
# Points at which the gradient is compared with that of the Gaussian whose curvature the map is from, and the median of their relative differences above which
# the posterior is another: regressions and item parameters are well below, and above is what a scale multiplies, as in a funnel.
POINTS, MAX_MISMATCH = 8, 0.7
# Numbers of an unconstrained point that is mapped, which is copied to the stack of a thread.
MAX_DIMENSION = 16_384


def find_linear_map(
    model: "pm.Model", compiled: Any, x: Array, effects: Collection[str] = ()
) -> LinearMap | None:
    """Find a linear map of correlated parameters, and say in the log what is found.

    Parameters
    ----------
    model : pymc.Model
        The model.
    compiled : CompiledModel
        The same compiled, with ``logp_dlogp``.
    x : ndarray, shape (n,)
        Where to look for the mode from.
    effects : collection of str
        Names of the variables that have sites, which are independent of all others.

    Returns
    -------
    LinearMap or None
        None where there is nothing to gain, and where a variable has a prior that others are parameters of, or is multiplied by a scale as if it had: the mode
        of such a density says nothing about it.
    """
    if compiled.n_dim > MAX_DIMENSION:
        return None
    dependent = [
        rv.name
        for rv in model.free_RVs
        if rv.name not in effects and _has_random_parameters(model, rv)
    ]
    if dependent:
        logger.info("coordinates stay as they are: priors depend on others, %s", *dependent[:1])
        return None
    # Those with sites are not found again, since they have another distribution.
    if unplaced := [*find_effects(model).kinds]:
        logger.info("coordinates stay as they are: effects have no sites, %s", *unplaced[:1])
        return None
    # On the way there may be points at which the gradient is not finite; what comes of them is looked at.
    with np.errstate(all="ignore"):
        try:
            found, ratio, x = _find_map_at_mode(
                compiled.logp_dlogp, x, *_variable_indices(model, compiled, effects)
            )
        except (ValueError, np.linalg.LinAlgError) as error:
            logger.info("coordinates stay as they are: %s", error)
            return None
        if found is None or not np.isfinite(ratio):
            return None
        off = _mismatch(compiled.logp_dlogp, found, x)
    if not off <= MAX_MISMATCH:
        message = "coordinates stay as they are: the posterior is no Gaussian, gradients differ by a factor of %.3g"
        logger.info(message, off)
        return None
    sizes = (len(found.indices), len(found.dependents))
    message = "%d parameters and %d that follow them get other coordinates: curvatures differ by a factor of %.3g"
    logger.info(message, *sizes, ratio)
    return found


def _find_map_at_mode(
    logp_dlogp: Density, x: Array, own: list[Indices], others: list[Indices]
) -> tuple[LinearMap | None, float, Array]:
    """Return the map at the mode, the ratio of curvatures, and the mode, which is found in the coordinates of the one before: without, a ridge may be too narrow to walk along."""

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
    """Return by how much the gradient differs from that of the Gaussian, at points drawn from it: the median of the relative differences.

    In units of its standard deviations, the gradient of a Gaussian at the distance ``d`` from its mode is ``-d``.
    """
    of_w, center = _in_coordinates(logp_dlogp, linear_map), linear_map.inverse(mode)
    rng, found = np.random.default_rng(0), []
    for _ in range(POINTS):
        distance = rng.normal(size=len(linear_map.indices))
        w = center.copy()
        w[linear_map.indices] += distance
        try:
            _, gradient = of_w(w)
        except ValueError:  # a check of the model, as at any point that is too far away
            return np.inf
        difference = gradient[linear_map.indices] + distance
        found.append(np.linalg.norm(difference) / np.linalg.norm(distance))
    return float(np.median(found))


def _in_coordinates(logp_dlogp: Density, linear_map: LinearMap) -> Density:
    def of_w(w: Array) -> tuple[float, Array]:
        logp, gradient = logp_dlogp(linear_map.forward(w))
        return logp, linear_map.gradient(gradient)

    return of_w


def _has_random_parameters(model: "pm.Model", rv: Any) -> bool:
    """Return whether the prior of a variable has others among its parameters."""
    others = {x for x in model.free_RVs if x is not rv}
    return any(x in others for x in ancestors(rv.owner.inputs, blockers=others))


def _variable_indices(
    model: "pm.Model", compiled: Any, effects: Collection[str]
) -> tuple[list[Indices], list[Indices]]:
    """Return where the variables are in the unconstrained point: those without and those with sites."""
    names = {model.rvs_to_values[rv].name: rv.name for rv in model.free_RVs}
    own: list[Indices] = []
    others: list[Indices] = []
    for name, place in zip(*compiled.shape_info[:2], strict=True):
        if name in names and place.stop <= compiled.n_dim:
            (others if names[name] in effects else own).append(np.arange(place.start, place.stop))
    return own, others
