"""Sites from the likelihood: its curvature at the mode of what remains to be sampled, from differences of gradients.

With the sites of the last round, the effects are nearly standard normal whatever their mean and scale are, so the joint mode is near that of the
marginal posterior of means and scales, as in Laplace's method; with none, it may be far from it. So the two alternate: sites at the mode, the mode
with these sites. A model is compiled once for that; sites are shared data of it.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from itertools import batched
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray

from pymc_fastlogp.parametrisation.model import Bundle, Sited, found_in, with_sites
from pymc_fastlogp.parametrisation.normal import standardised_of
from pymc_fastlogp.parametrisation.sites import Site, values_of

if TYPE_CHECKING:
    import pymc as pm

logger = logging.getLogger("pymc_fastlogp")

Array = NDArray[np.float64]
Sites = Mapping[Bundle, Site]

# Steps of the optimiser in each round; the first ones only have to find where the data are.
ROUNDS = (40, 60, 60)
# Of the differences of gradients, in standard deviations of the prior.
STEP = 1e-4


def pilot_of(
    model: "pm.Model", compile: Callable[["pm.Model"], Any], left_out: Collection[str] = ()
) -> "Pilot | None":
    """Find the effects of a model and their sites, and say in the log what is left as it is; None where no effect is found.

    Parameters
    ----------
    model : pymc.Model
        The model as written.
    compile : callable
        From a model to what it is compiled to, with ``logp_dlogp`` and ``with_data``.
    left_out : collection of str
        Names of variables that stay as they are, since they have initial values.
    """
    from pymc.model.transform.optimization import freeze_dims_and_data

    try:
        frozen = freeze_dims_and_data(model)
    except (NotImplementedError, ValueError) as error:
        logger.info("all variables stay as they are: %s", error)
        return None
    found = found_in(frozen, left_out)
    for one in found.left_alone:
        logger.info("%s stays as it is: %s", one.name, one.reason)
    for bundle in found.bundles:
        logger.info("%s get sites", ", ".join(f"{x} ({found.kinds[x]})" for x in bundle))
    if not found.bundles:
        return None
    shapes = {names: frozen[names[0]].type.shape for names in found.bundles}
    pilot = Pilot(frozen, shapes, compile)
    pilot.run()
    return pilot


class Pilot:
    """A model whose sites are looked for.

    Parameters
    ----------
    model : pymc.Model
        With lengths and data that are known.
    bundles : mapping of tuple of str to tuple of int
        The shape of the effects that go together.
    compile : callable
        From a model to what it is compiled to.

    Attributes
    ----------
    sites : mapping of tuple of str to Site
        The sites found so far.
    compiled : CompiledModel
        The model with the sites found so far.
    """

    def __init__(
        self,
        model: "pm.Model",
        bundles: Mapping[Bundle, tuple[int, ...]],
        compile: Callable[["pm.Model"], Any],
    ):
        self._none: Sites = {
            names: Site.nothing(len(names), shape) for names, shape in bundles.items()
        }
        self._sited = with_sites(model, self._none, is_shared=True)
        # With sites of nothing the effects are what they are in the non-centred model.
        self._standard = compile(self._sited.model)
        self.compiled, self.sites = self._standard, self._none
        self._slices = _slices(self._sited.model, self.compiled.shape_info)
        self._hyperparameters = _hyperparameters(self._sited, self._slices)

    def run(self) -> None:
        """Find the sites."""
        x = self._middle(self.compiled.initial_point_func(0))
        for n_steps in ROUNDS:
            x = self._mode(x, n_steps)
            self._use(self._sites_at(x))
            x = self._middle(x)

    def _middle(self, x: Array) -> Array:
        """Return the point where effects are in the middle of what is left to sample."""
        x = np.array(x, dtype=np.float64)
        for names in self._none:
            for name in names:
                x[self._slices[name]] = 0.0
        return x

    def _use(self, sites: Sites) -> None:
        updates: dict[str, Array] = {}
        for names, site in sites.items():
            updates |= values_of(names, site)
        self.sites = sites
        self.compiled = self._standard.with_data(**updates)
        for name, variable in self._sited.shared.items():
            variable.set_value(updates[name])

    def _mode(self, x: Array, n_steps: int) -> Array:
        from scipy.optimize import minimize

        def cost(x: Array) -> tuple[float, Array]:
            logp, gradient = self.compiled.logp_dlogp(x)
            if not (np.isfinite(logp) and np.isfinite(gradient).all()):
                return np.inf, np.zeros_like(x)
            return -logp, -gradient

        options = {"maxiter": n_steps}
        return np.asarray(minimize(cost, x, jac=True, method="L-BFGS-B", options=options).x)

    def _sites_at(self, x: Array) -> Sites:
        """Return the sites by the curvature at a point."""
        means, scales, standardised = self._hyperparameters(x)
        at = x.copy()
        for name, u in standardised.items():
            at[self._slices[name]] = u.ravel()
        _, gradient = self._standard.logp_dlogp(at)
        return {
            names: self._site(names, none.gradient.shape[1:], at, gradient, means, scales)
            for names, none in self._none.items()
        }

    def _site(
        self,
        names: Bundle,
        shape: tuple[int, ...],
        at: Array,
        gradient: Array,
        means: Mapping[str, Array],
        scales: Mapping[str, Array],
    ) -> Site:
        u = np.stack([at[self._slices[name]].reshape(shape) for name in names])
        scale = np.stack([scales[name] for name in names])
        effect = np.stack([means[name] for name in names]) + scale * u
        precision = self._precision(names, shape, at)
        own = np.eye(len(names)).reshape(len(names), len(names), *[1] * len(shape))
        of_prior = np.stack([gradient[self._slices[name]].reshape(shape) for name in names])
        with np.errstate(all="ignore"):
            information = (precision - own) / (scale[:, None] * scale[None])
            slope = (of_prior + u) / scale
        site = Site(information, slope).guarded()
        # The guard changes the curvature alone, not the slope at this point.
        h = site.gradient + np.einsum("ij...,j...->i...", site.information, effect)
        return Site(site.information, h).guarded()

    def _precision(self, names: Bundle, shape: tuple[int, ...], at: Array) -> Array:
        """Return minus the second derivatives between effects of the same group, shape ``(K, K, *shape)``."""
        columns = []
        for name in names:
            step = np.zeros_like(at)
            step[self._slices[name]] = STEP
            _, above = self._standard.logp_dlogp(at + step)
            _, below = self._standard.logp_dlogp(at - step)
            slope = (below - above) / (2 * STEP)
            columns.append([slope[self._slices[other]].reshape(shape) for other in names])
        return np.swapaxes(np.array(columns), 0, 1)


def _slices(model: "pm.Model", shape_info: Any) -> dict[str, slice]:
    """Return where the free variables are in the unconstrained point."""
    variables = {model.rvs_to_values[rv].name: rv.name for rv in model.free_RVs}
    names, slices, _ = shape_info
    of_values = list(zip(names, slices, strict=True))[: len(variables)]
    return {variables[name]: place for name, place in of_values}


def _hyperparameters(
    sited: Sited, slices: Mapping[str, slice]
) -> Callable[[Array], list[dict[str, Array]]]:
    """Return a function from a point to means, scales and standardised effects by name."""
    names, model = list(sited.means), sited.model
    effects = [model[name] for name in names]
    standardised = [standardised_of(x) for x in effects]
    # One after the other, all of the shapes of the effects.
    wanted = [*sited.means.values(), *sited.scales.values(), *standardised]
    shaped = [x + pt.zeros_like(y) for x, y in zip(wanted, effects * 3, strict=True)]
    function = pytensor.function(
        [model.rvs_to_values[rv] for rv in model.free_RVs],
        model.replace_rvs_by_values(shaped),
        mode=pytensor.compile.mode.FAST_COMPILE,
        on_unused_input="ignore",
    )
    shapes = [(rv.name, model.rvs_to_values[rv].type.shape) for rv in model.free_RVs]

    def evaluated(x: Array) -> list[dict[str, Array]]:
        values = function(*(x[slices[name]].reshape(shape) for name, shape in shapes))
        parts = batched(values, len(names))
        return [dict(zip(names, part, strict=True)) for part in parts]

    return evaluated
