"""Coordinates for the parameters of a model that are correlated given the data, such as coefficients of a regression: found by a pilot."""

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
from pytensor.graph.traversal import ancestors

from pymc_fastlogp.reparametrization.linear_map import LinearMap, Places, linear_map
from pymc_fastlogp.reparametrization.mode import Array, Density, mode_of
from pymc_fastlogp.reparametrization.sited_model import found_in

if TYPE_CHECKING:
    import pymc as pm

logger = logging.getLogger("pymc_fastlogp")

# Of the optimizer, before the derivatives are taken: at first, and in the coordinates of each round.
STEPS, ROUNDS = 160, 2
# Points at which the gradient is compared with that of the Gaussian whose curvature the map is from, and the median of their relative differences above which
# the posterior is another: regressions and item parameters are well below, and above is what a scale multiplies, as in a funnel.
POINTS, MOST_OFF = 8, 0.7
# Numbers of an unconstrained point that is mapped, which is copied to the stack of a thread.
MOST_NUMBERS = 16_384


def coordinates_of(
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
    if compiled.n_dim > MOST_NUMBERS:
        return None
    dependent = [rv.name for rv in model.free_RVs if rv.name not in effects and _depends(model, rv)]
    if dependent:
        logger.info("coordinates stay as they are: priors depend on others, %s", *dependent[:1])
        return None
    # Those with sites are not found again, since they have another distribution.
    if unplaced := [*found_in(model).kinds]:
        logger.info("coordinates stay as they are: effects have no sites, %s", *unplaced[:1])
        return None
    # On the way there may be points at which the gradient is not finite; what comes of them is looked at.
    with np.errstate(all="ignore"):
        try:
            found, ratio, x = _searched(compiled.logp_dlogp, x, *_places(model, compiled, effects))
        except (ValueError, np.linalg.LinAlgError) as error:
            logger.info("coordinates stay as they are: %s", error)
            return None
        if found is None or not np.isfinite(ratio):
            return None
        off = _off(compiled.logp_dlogp, found, x)
    if not off <= MOST_OFF:
        message = "coordinates stay as they are: the posterior is no Gaussian, gradients differ by a factor of %.3g"
        logger.info(message, off)
        return None
    sizes = (len(found.places), len(found.followers))
    message = "%d parameters and %d that follow them get other coordinates: curvatures differ by a factor of %.3g"
    logger.info(message, *sizes, ratio)
    return found


def _searched(
    logp_dlogp: Density, x: Array, blocks: list[Places], others: list[Places]
) -> tuple[LinearMap | None, float, Array]:
    """Return the map at the mode, the ratio of curvatures, and the mode, which is found in the coordinates of the one before: without, a ridge may be too narrow to walk along."""

    def gradient(x: Array) -> Array:
        return logp_dlogp(x)[1]

    x = mode_of(logp_dlogp, x, STEPS)
    found, ratio = linear_map(gradient, x, blocks, others)
    for _ in range(ROUNDS):
        if found is None:
            break
        x = found.forward(mode_of(_mapped(logp_dlogp, found), found.inverse(x), STEPS))
        found, ratio = linear_map(gradient, x, blocks, others)
    return found, ratio, x


def _off(logp_dlogp: Density, linear_map: LinearMap, mode: Array) -> float:
    """Return by how much the gradient differs from that of the Gaussian, at points drawn from it: the median of the relative differences.

    In units of its standard deviations, the gradient of a Gaussian at the distance ``d`` from its mode is ``-d``.
    """
    of_w, center = _mapped(logp_dlogp, linear_map), linear_map.inverse(mode)
    rng, found = np.random.default_rng(0), []
    for _ in range(POINTS):
        distance = rng.normal(size=len(linear_map.places))
        w = center.copy()
        w[linear_map.places] += distance
        try:
            _, gradient = of_w(w)
        except ValueError:  # a check of the model, as at any point that is too far away
            return np.inf
        difference = gradient[linear_map.places] + distance
        found.append(np.linalg.norm(difference) / np.linalg.norm(distance))
    return float(np.median(found))


def _mapped(logp_dlogp: Density, linear_map: LinearMap) -> Density:
    def of_w(w: Array) -> tuple[float, Array]:
        logp, gradient = logp_dlogp(linear_map.forward(w))
        return logp, linear_map.gradient(gradient)

    return of_w


def _depends(model: "pm.Model", rv: Any) -> bool:
    """Return whether the prior of a variable has others among its parameters."""
    others = {x for x in model.free_RVs if x is not rv}
    return any(x in others for x in ancestors(rv.owner.inputs, blockers=others))


def _places(
    model: "pm.Model", compiled: Any, effects: Collection[str]
) -> tuple[list[Places], list[Places]]:
    """Return where the variables are in the unconstrained point: those without and those with sites."""
    names = {model.rvs_to_values[rv].name: rv.name for rv in model.free_RVs}
    blocks: list[Places] = []
    others: list[Places] = []
    for name, place in zip(*compiled.shape_info[:2], strict=True):
        if name in names and place.stop <= compiled.n_dim:
            (others if names[name] in effects else blocks).append(
                np.arange(place.start, place.stop)
            )
    return blocks, others
