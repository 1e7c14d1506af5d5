r"""Pilot run: estimate sites from the curvature of the likelihood, by differences of gradients.

Each round alternates two steps:

1. Find the joint mode of the residuals ``z`` and all other parameters, given the sites, by L-BFGS.
2. Set the sites from the gradient ``g`` and the precision ``P`` (minus the second derivatives) at that mode.

For effects ``a = mean + F u`` the log density in ``u`` is the log likelihood minus ``u @ u / 2``, so the site has

    I = F^-T (P - 1) F^-1,   h = F^-T (g + u) + I a

With sites of the previous round, residuals are nearly standard normal for any means and scales. The joint mode is then close to the mode of the marginal posterior of
means and scales, as in Laplace's method. With flat sites the two modes may differ widely, hence several rounds.

The model is compiled once. Sites are its shared data.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph import rewrite_graph
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import in2out, node_rewriter

from pymc_fastlogp.reparametrization.crossed import at_zero_shared_mean, crossing_signs
from pymc_fastlogp.reparametrization.matrix_normal import MatrixTransform
from pymc_fastlogp.reparametrization.model_with_sites import ModelWithSites, with_sites
from pymc_fastlogp.reparametrization.posterior_mode import find_mode
from pymc_fastlogp.reparametrization.sites import Array, Block, Site, site_arrays
from pymc_fastlogp.reparametrization.zero_sum import ZeroSumSiteTransform

if TYPE_CHECKING:
    import pymc as pm

logger = logging.getLogger("pymc_fastlogp")

Sites = Mapping[Block, Site]

# Optimizer steps per round. The first round only needs a rough mode.
ROUNDS = (40, 60, 60)
# Step of differences of gradients, in standard deviations of the prior.
STEP = 1e-4
# Relative change of second derivatives if other groups move in the opposite direction. Above this median, the likelihood couples the entries.
COUPLED = 0.25


class Pilot:
    """Pilot run for the sites of a model.

    Parameters
    ----------
    model : pymc.Model
        Model with constant data and dimension lengths.
    flat : mapping of tuple of str to Site
        Flat site of each block of effects.
    compile : callable
        Function that compiles a model.

    Attributes
    ----------
    sites : mapping of tuple of str to Site
        Current sites.
    compiled : CompiledModel
        Compiled model with the current sites.
    model : pymc.Model
        Model with the current sites.
    point : ndarray
        Approximate mode of the model, with residuals of effects at 0.
    effects : set of str
        Names of the variables that have sites.
    coupled : set of str
        Variables with sites whose entries the likelihood couples, such as coefficients of a regression or steps of a random walk.
        Independent sites would be wrong for them.
    """

    def __init__(
        self,
        model: "pm.Model",
        flat: Sites,
        compile: Callable[["pm.Model"], Any],
    ):
        self._flat = flat
        self.effects = {name for names in flat for name in names}
        self.coupled: set[str] = set()
        new = with_sites(model, flat, is_shared=True)
        self.model, self._shared = new.model, new.shared
        # With flat sites, value variables of effects are the standardized effects.
        self._standard = compile(new.model)
        self.compiled, self.sites = self._standard, flat
        layout = _layout(new.model, self.compiled.shape_info)
        self._slices = {name: place for name, (place, _) in layout.items()}
        self._indices = {names: self._indices_of(names) for names in flat}
        self._hyperparameters = _hyperparameters(new, self.compiled.shape_info, flat)
        self.point = self._at_zero_residuals(self.compiled.initial_point_func(0))

    def run(self) -> None:
        """Run the pilot, and update ``sites``, ``compiled``, ``model`` and ``point``."""
        x = self.point
        for n_steps in ROUNDS:
            x = find_mode(self.compiled.logp_dlogp, x, n_steps)
            try:
                sites = self._sites_at(x)
                if self.coupled:
                    return
                self._use(sites)
            except ValueError as error:
                logger.info("sites are not updated: %s", error)
                return
            self.point = x = self._at_zero_residuals(x)

    def _at_zero_residuals(self, x: Array) -> Array:
        """Return the point with the residuals of all effects set to 0."""
        x = np.array(x, dtype=np.float64)
        for indices in self._indices.values():
            x[indices] = 0.0
        return x

    def _use(self, sites: Sites) -> None:
        """Set the sites of the compiled model and of the model."""
        updates: dict[str, Array] = {}
        for names, site in sites.items():
            updates |= site_arrays(names, site)
        self.sites = sites
        # The graph does not use all arrays: the first crossed effect needs no weight.
        read = {x.name for x in self._standard.shared_var_keys}
        self.compiled = self._standard.with_data(
            **{name: x for name, x in updates.items() if name in read}
        )
        for name, variable in self._shared.items():
            variable.set_value(updates[name])

    def _indices_of(self, names: Block) -> NDArray[np.intp]:
        """Return the indices of the effects of a block in the unconstrained point, shape ``(K, *shape)``."""
        model = self.model
        slices = [self._slices[name] for name in names]
        transform = model.rvs_to_transforms[model[names[0]]]
        shape = model.rvs_to_values[model[names[0]]].type.shape
        indices = np.array([np.arange(x.start, x.stop).reshape(shape) for x in slices])
        if not isinstance(transform, MatrixTransform):
            return indices
        return indices[0].T if transform.group_axis == 0 else indices[0]

    def _sites_at(self, x: Array) -> Sites:
        """Return the sites at a point, from differences of the gradient with respect to standardized effects."""
        hyperparameters = self._hyperparameters(x)
        at = x.copy()
        for names, (_, _, standardized) in hyperparameters.items():
            at[self._indices[names]] = standardized
        _, gradient = self._standard.logp_dlogp(at)
        sites, effects = {}, {}
        curvatures = {names: self._curvature(names, at) for names in hyperparameters}
        scales = {names: factor for names, (_, factor, _) in hyperparameters.items()}
        signs = crossing_signs(self._responses(at, curvatures, scales))
        shares = self._shares(scales, signs)
        for names, (mean, factor, _) in hyperparameters.items():
            indices, others = self._indices[names], self._flat[names].slopes
            measured = Expansion(
                at[indices],
                gradient[indices],
                curvatures[names],
                {name: shares[names] * self._slopes_by(indices, at, name) for name in others},
                {name: x[self._slices[name]] for name in others},
            )
            sites[names], effects[names] = measured.site(
                np.broadcast_to(mean, indices.shape), factor
            )
        return at_zero_shared_mean(sites, effects, signs)

    def _responses(
        self, at: Array, curvatures: Mapping[Block, Array], scales: Mapping[Block, Array]
    ) -> dict[Block, dict[Block, Array]]:
        """Return minus the derivatives of the gradients of candidates for crossing with respect to a shift of each factor."""
        names = [x for x, flat in self._flat.items() if flat.sign is not None]
        found = {}
        for moved in names:
            [indices] = self._indices[moved]
            scale = np.broadcast_to(scales[moved][0], indices.shape)
            with np.errstate(all="ignore"):
                amounts = np.min(scale) / scale
                by_shift = self._differences(at, indices, amounts) / np.min(scale)
                own = (curvatures[moved][0, 0] - 1.0) / scale
            found[moved] = {x: by_shift[self._indices[x][0]] for x in names} | {moved: own}
        return found

    def _shares(
        self, scales: Mapping[Block, Array], signs: Mapping[Block, float]
    ) -> dict[Block, float]:
        """Return the share of the effect of other parameters that the site of each block compensates.

        Blocks that are not crossed do not depend on each other. If each compensated the whole effect, it would be compensated several times.
        Shares are proportional to the prior variance of the mean of a block.
        """
        variances = {
            names: np.mean(np.square(factor)) / self._indices[names][0].size
            for names, factor in scales.items()
            if self._flat[names].slopes and not signs.get(names)
        }
        total = sum(variances.values()) or 1.0
        return {
            names: float(variances[names] / total) if names in variances else 1.0
            for names in scales
        }

    def _slopes_by(self, indices: NDArray[np.intp], at: Array, other: str) -> Array:
        """Return minus the derivatives of the gradient with respect to another parameter, shape ``(K, *shape, n)``."""
        where = self._slices[other]
        parts = [self._slopes(indices, at, i) for i in range(where.start, where.stop)]
        return np.stack(parts, axis=-1)

    def _curvature(self, names: Block, at: Array) -> Array:
        """Return minus the second derivatives with respect to the effects of each group, shape ``(K, K, *shape)``, and record coupled effects.

        All groups move at once, which is exact if the likelihood does not couple them. A second set of moves with random signs checks this.
        """
        indices, model = self._indices[names], self.model
        if isinstance(model.rvs_to_transforms[model[names[0]]], ZeroSumSiteTransform):
            # Entries of ``v`` are coupled by the isometry, so they move one by one.
            rows = [
                [self._slopes(indices, at, index)[:, group] for group, index in enumerate(row)]
                for row in indices
            ]
            return np.moveaxis(np.array(rows), (0, 1, 2), (1, 2, 0))
        signs = np.where(np.random.default_rng(0).random(indices.shape[1:]) < 0.5, -1.0, 1.0)
        at_once, with_signs = (
            np.array([self._differences(at, one, x)[indices] * x for one in indices])
            for x in (1.0, signs)
        )
        own, other = (np.einsum("kk...->k...", x) for x in (at_once, with_signs))
        differences = np.abs(own - other) / np.maximum(np.abs(own), np.abs(other))
        if (np.median(differences.reshape(len(indices), -1), axis=1) > COUPLED).any():
            self.coupled.update(names)
        return np.swapaxes(at_once, 0, 1)

    def _slopes(self, indices: NDArray[np.intp], at: Array, moved: Any) -> Array:
        """Return minus the derivatives of the gradient of a block along some entries, shape ``(K, *shape)``."""
        return self._differences(at, moved)[indices]

    def _differences(self, at: Array, moved: Any, amounts: Array | float = 1.0) -> Array:
        """Return minus the derivatives of the whole gradient along some entries."""
        step = np.zeros_like(at)
        step[moved] = STEP * np.asarray(amounts)
        _, above = self._standard.logp_dlogp(at + step)
        _, below = self._standard.logp_dlogp(at - step)
        return (below - above) / (2 * STEP)


class Expansion(NamedTuple):
    """Second-order expansion of the log density in standardized effects at a point, effects on the first axis.

    Attributes
    ----------
    standardized, gradient : ndarray, shape (K, *shape)
        Standardized effects, and the gradient of the log density.
    precision : ndarray, shape (K, K, *shape)
        Minus the second derivatives.
    slopes : mapping of str to ndarray, shape (K, *shape, n)
        Minus the derivatives of the gradient with respect to other parameters.
    others : mapping of str to ndarray
        Values of these parameters.
    """

    standardized: Array
    gradient: Array
    precision: Array
    slopes: Mapping[str, Array]
    others: Mapping[str, Array]

    def site(self, mean: Array, factor: Array) -> tuple[Site, Array]:
        """Return the site of effects ``mean + factor @ standardized``, and the effects. A diagonal factor has one axis less."""
        n_effects, n_axes = len(mean), mean.ndim - 1
        own = np.eye(n_effects).reshape(n_effects, n_effects, *[1] * n_axes)
        if factor.ndim == mean.ndim:
            factor = own * factor
        with np.errstate(all="ignore"):
            inverse = _inverse(factor)
            information = np.einsum(
                "ka...,kl...,lb...->ab...", inverse, self.precision - own, inverse
            )
            slope = np.einsum("ka...,k...->a...", inverse, self.gradient + self.standardized)
            slopes = {
                name: np.einsum("ka...,k...n->a...n", inverse, x) for name, x in self.slopes.items()
            }
        effect = mean + np.einsum("ak...,k...->a...", factor, self.standardized)
        # Project the information first, so that the site keeps the gradient of the likelihood at this point.
        site = Site(information, slope, slopes).projected()
        h = site.gradient + np.einsum("ab...,b...->a...", site.information, effect)
        h += sum(site.slopes[name] @ x for name, x in self.others.items())
        return Site(site.information, h, site.slopes).projected(), effect


def _inverse(factors: Array) -> Array:
    """Return the inverses of matrices on the first two axes, NaN for singular matrices."""
    if len(factors) == 1:
        return 1 / factors
    matrices = np.moveaxis(factors, (0, 1), (-2, -1))
    singular = ~(np.abs(np.linalg.det(matrices)) > 0)
    matrices = np.where(singular[..., None, None], np.eye(len(factors)), matrices)
    inverses = np.where(singular[..., None, None], np.nan, np.linalg.inv(matrices))
    return np.moveaxis(inverses, (-2, -1), (0, 1))


def _layout(model: "pm.Model", shape_info: Any) -> dict[str, tuple[slice, tuple[int, ...]]]:
    """Return the slice of each free variable in the unconstrained point, and its shape, which its type may not have."""
    variables = {model.rvs_to_values[rv].name: rv.name for rv in model.free_RVs}
    of_values = list(zip(*shape_info, strict=True))[: len(variables)]
    return {variables[name]: (place, shape) for name, place, shape in of_values}


def _in_graph(new: ModelWithSites, names: Block) -> list[Variable]:
    """Return mean, factor and standardized effects of a block, as variables of the shapes that :class:`Expansion` expects."""
    rvs = [new.model[name] for name in names]
    if isinstance(new.model.rvs_to_transforms[rvs[0]], MatrixTransform):
        [name] = names
        return [
            new.means[name].T,
            new.factors[name][:, :, None],
            rvs[0].owner.op.standardized(rvs[0]),
        ]
    standardized = [rv.owner.op.standardized(rv) for rv in rvs]
    shaped = [
        [of[name] + pt.zeros_like(u) for name, u in zip(names, standardized, strict=True)]
        for of in (new.means, new.factors)
    ]
    return [*map(pt.stack, shaped), pt.stack(standardized)]


@node_rewriter([OpFromGraph])
def _inline(fgraph: FunctionGraph, node: Apply) -> list[Variable]:
    """Inline an OpFromGraph: compiling its inner function takes longer than the pilot."""
    return inline_ofg_node(node)


_inlined = in2out(_inline, ignore_newtrees=False)


def _hyperparameters(
    new: ModelWithSites, shape_info: Any, blocks: Collection[Block]
) -> Callable[[Array], dict[Block, list[Array]]]:
    """Return a function from a point to mean, factor and standardized effects of each block."""
    model = new.model
    wanted = [x for names in blocks for x in _in_graph(new, names)]
    function = pytensor.function(
        [model.rvs_to_values[rv] for rv in model.free_RVs],
        rewrite_graph(model.replace_rvs_by_values(wanted), include=(), custom_rewrite=_inlined),
        # The function is called once per round. The Python linker avoids compiling the C virtual machine.
        mode=Mode("py", None),
        on_unused_input="ignore",
    )
    layout = _layout(model, shape_info)
    layouts = [layout[rv.name] for rv in model.free_RVs]

    def evaluated(x: Array) -> dict[Block, list[Array]]:
        found = function(*(x[place].reshape(shape) for place, shape in layouts))
        return {names: found[3 * i : 3 * i + 3] for i, names in enumerate(blocks)}

    return evaluated
