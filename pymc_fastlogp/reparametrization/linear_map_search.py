r"""Search for the linear map of a model: choose its correlated parameters, at the mode, and check that a map helps.

The map itself is derived in :mod:`~pymc_fastlogp.reparametrization.linear_map`.

The joint mode of parameters ``p`` and many dependents ``f`` may be far from the posterior. In an item response model it multiplies discriminations, and divides the
spread of abilities, until the prior of the discriminations stops it. So the dependents are averaged out: the search maximizes over ``p``, ``m`` and ``s``

    (log p(p, m + s) + log p(p, m - s)) / 2 + sum(log(s))

This is the evidence lower bound of independent Gaussians ``f ~ N(m, s^2)``, by two-point Gauss-Hermite quadrature for each dependent. Since the log density is a sum of
terms with one dependent each, two evaluations suffice for all dependents. If ``f`` is Gaussian given ``p``, the result is the mode of the marginal density of ``p``.
The averaged density also gives the second derivatives.
"""

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pytensor.graph.traversal import ancestors

from pymc_fastlogp.reparametrization.linear_map import STEP, Array, Indices, LinearMap, linear_map
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
            found, ratio, x, density = _find_map_at_mode(
                compiled.logp_dlogp, x, *_variable_indices(model, compiled, effects)
            )
        except (ValueError, np.linalg.LinAlgError) as error:
            logger.info("no linear map: %s", error)
            return None
        if found is None or not np.isfinite(ratio):
            return None
        mismatch = _mismatch(density, found, x)
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
) -> tuple[LinearMap | None, float, Array, Density]:
    """Return the map at the mode, the condition number, the mode, and the density, in which dependents are averaged out.

    Each round searches for the mode in the coordinates of the previous map, since the optimizer stalls on a narrow ridge.
    """
    density: Density = logp_dlogp
    x = find_mode(logp_dlogp, x, STEPS)
    found, ratio = linear_map(_gradient_of(density), x, own, others)
    for _ in range(ROUNDS):
        if found is None:
            break
        if len(found.dependents):
            x, averaged = _averaged_mode(logp_dlogp, found, x)
            density = averaged.__call__
        else:
            start = found.inverse(x)
            x = found.forward(find_mode(_in_coordinates(density, found), start, STEPS))
        found, ratio = linear_map(_gradient_of(density), x, own, others)
    return found, ratio, x, density


def _gradient_of(density: Density) -> Callable[[Array], Array]:
    return lambda x: density(x)[1]


class _Averaged(NamedTuple):
    """Log density, averaged over points in which all dependents are one standard deviation above and below.

    Attributes
    ----------
    logp_dlogp : callable
        The density.
    spread : ndarray, shape (n,)
        Standard deviations of the dependents, 0 for all other entries.
    """

    logp_dlogp: Density
    spread: Array

    def __call__(self, x: Array) -> tuple[float, Array]:
        """Return the average and its gradient."""
        logp, gradient, _ = self.with_slope(x)
        return logp, gradient

    def with_slope(self, x: Array) -> tuple[float, Array, Array]:
        """Return the average, and its gradients with respect to the point and to the spread."""
        above, by_above = self.logp_dlogp(x + self.spread)
        below, by_below = self.logp_dlogp(x - self.spread)
        return (above + below) / 2, (by_above + by_below) / 2, (by_above - by_below) / 2


def _averaged_mode(logp_dlogp: Density, linear_map: LinearMap, x: Array) -> tuple[Array, _Averaged]:
    """Return the mode in which dependents are averaged out, and the averaged density.

    Parameters
    ----------
    logp_dlogp : callable
        The density.
    linear_map : LinearMap
        Coordinates of the search.
    x : ndarray, shape (n,)
        Initial point, with a negative second derivative for each dependent.
    """
    dependents, n = linear_map.dependents, len(x)

    def averaged(log_deviations: Array) -> _Averaged:
        spread = np.zeros(n)
        spread[dependents] = np.exp(log_deviations)
        return _Averaged(logp_dlogp, spread)

    def bound(y: Array) -> tuple[float, Array]:
        w, log_deviations = y[:n], y[n:]
        density = averaged(log_deviations)
        logp, by_x, by_spread = density.with_slope(linear_map.forward(w))
        by_log = by_spread[dependents] * density.spread[dependents] + 1.0
        return logp + log_deviations.sum(), np.concatenate([linear_map.gradient(by_x), by_log])

    step = averaged(np.full(len(dependents), np.log(STEP)))
    precision = -step.with_slope(x)[2][dependents] / STEP
    start = np.concatenate([linear_map.inverse(x), -np.log(precision) / 2])
    found = find_mode(bound, start, STEPS)
    return linear_map.forward(found[:n]), averaged(found[n:])


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
