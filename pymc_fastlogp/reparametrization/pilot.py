"""Sites from the likelihood: its curvature at the mode of what remains to be sampled, from differences of gradients.

With the sites of the last round, the effects are nearly standard normal whatever their mean and scale are, so the joint mode is near that of the
marginal posterior of means and scales, as in Laplace's method; with none, it may be far from it. So the two alternate: sites at the mode, the mode
with these sites. A model is compiled once for that; sites are shared data of it.
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
from pymc_fastlogp.reparametrization.mode import find_mode
from pymc_fastlogp.reparametrization.model_with_sites import ModelWithSites, with_sites
from pymc_fastlogp.reparametrization.sites import Block, Site, site_arrays
from pymc_fastlogp.reparametrization.zero_sum import ZeroSumSiteTransform

if TYPE_CHECKING:
    import pymc as pm

logger = logging.getLogger("pymc_fastlogp")

Array = NDArray[np.float64]
Sites = Mapping[Block, Site]

# Steps of the optimizer in each round; the first ones only have to find where the data are.
ROUNDS = (40, 60, 60)
# Of the differences of gradients, in standard deviations of the prior.
STEP = 1e-4
# What the second derivatives by an effect differ by when those of other groups are moved the other way, for most groups: those are then no groups.
COUPLED = 0.25


class Pilot:
    """A model whose sites are looked for.

    Parameters
    ----------
    model : pymc.Model
        With lengths and data that are known.
    nothing : mapping of tuple of str to Site
        Sites that say flat, for effects that go together.
    compile : callable
        From a model to what it is compiled to.

    Attributes
    ----------
    sites : mapping of tuple of str to Site
        The sites found so far.
    compiled : CompiledModel
        The model with the sites found so far.
    model : pymc.Model
        The same, not compiled.
    point : ndarray
        Its mode.
    effects : set of str
        Names of the variables that have sites.
    coupled : set of str
        Those of them whose entries the likelihood does not know apart, as coefficients of a regression or steps of a walk: a site for each would be wrong.
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
        self._sited = with_sites(model, flat, is_shared=True)
        self.model = self._sited.model
        # With sites of nothing the effects are what they are in the non-centered model.
        self._standard = compile(self._sited.model)
        self.compiled, self.sites = self._standard, flat
        self._slices = _slices(self._sited.model, self.compiled.shape_info)
        self._indices = {names: self._indices_of(names) for names in flat}
        self._hyperparameters = _hyperparameters(self._sited, self.compiled.shape_info, flat)
        self.point = self._middle(self.compiled.initial_point_func(0))

    def run(self) -> None:
        """Find the sites."""
        x = self.point
        for n_steps in ROUNDS:
            x = find_mode(self.compiled.logp_dlogp, x, n_steps)
            try:
                sites = self._sites_at(x)
                if self.coupled:
                    return
                self._use(sites)
            except ValueError as error:
                logger.info("sites stay as they are: %s", error)
                return
            self.point = x = self._middle(x)

    def _middle(self, x: Array) -> Array:
        """Return the point where effects are in the middle of what is left to sample."""
        x = np.array(x, dtype=np.float64)
        for indices in self._indices.values():
            x[indices] = 0.0
        return x

    def _use(self, sites: Sites) -> None:
        updates: dict[str, Array] = {}
        for names, site in sites.items():
            updates |= site_arrays(names, site)
        self.sites = sites
        # The first of crossed effects needs no weight.
        read = {x.name for x in self._standard.shared_var_keys}
        self.compiled = self._standard.with_data(
            **{name: x for name, x in updates.items() if name in read}
        )
        for name, variable in self._sited.shared.items():
            variable.set_value(updates[name])

    def _indices_of(self, names: Block) -> NDArray[np.intp]:
        """Return where effects that go together are in the unconstrained point, shape ``(K, *shape)``."""
        model = self._sited.model
        slices = [self._slices[name] for name in names]
        transform = model.rvs_to_transforms[model[names[0]]]
        shape = model.rvs_to_values[model[names[0]]].type.shape
        indices = np.array([np.arange(x.start, x.stop).reshape(shape) for x in slices])
        if not isinstance(transform, MatrixTransform):
            return indices
        return indices[0].T if transform.group_axis == 0 else indices[0]

    def _sites_at(self, x: Array) -> Sites:
        """Return the sites by the curvature at a point."""
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
        """Return minus the derivatives of the gradients of effects that may be crossed by the level of each factor."""
        names = [x for x, flat in self._flat.items() if flat.sign is not None]
        found = {}
        for moved in names:
            [indices] = self._indices[moved]
            scale = np.broadcast_to(scales[moved][0], indices.shape)
            with np.errstate(all="ignore"):
                amounts = np.min(scale) / scale
                by_level = self._differences(at, indices, amounts) / np.min(scale)
                own = (curvatures[moved][0, 0] - 1.0) / scale
            found[moved] = {x: by_level[self._indices[x][0]] for x in names} | {moved: own}
        return found

    def _shares(
        self, scales: Mapping[Block, Array], signs: Mapping[Block, float]
    ) -> dict[Block, float]:
        """Return how much of what another parameter does to the likelihood each of several effects takes back: all, if it knows of the others.

        Were each to take back all of it, they would do so several times. Their means know as little of each other as the prior has them vary.
        """
        vague = {
            names: np.mean(np.square(factor)) / self._indices[names][0].size
            for names, factor in scales.items()
            if self._flat[names].slopes and not signs.get(names)
        }
        total = sum(vague.values()) or 1.0
        return {names: float(vague[names] / total) if names in vague else 1.0 for names in scales}

    def _slopes_by(self, indices: NDArray[np.intp], at: Array, other: str) -> Array:
        """Return minus the derivatives of the gradient by another parameter, shape ``(K, *shape, n)``."""
        where = self._slices[other]
        parts = [self._slopes(indices, at, i) for i in range(where.start, where.stop)]
        return np.stack(parts, axis=-1)

    def _curvature(self, names: Block, at: Array) -> Array:
        """Return minus the second derivatives by the effects of each group, shape ``(K, K, *shape)``, and remember effects that are coupled."""
        indices, model = self._indices[names], self._sited.model
        if isinstance(model.rvs_to_transforms[model[names[0]]], ZeroSumSiteTransform):
            # Each has a part in the derivatives by the others, so that they are moved one by one.
            rows = [
                [self._slopes(indices, at, place)[:, group] for group, place in enumerate(one)]
                for one in indices
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
        """Return minus the derivatives of the gradient in the direction of some entries, shape ``(K, *shape)``."""
        return self._differences(at, moved)[indices]

    def _differences(self, at: Array, moved: Any, amounts: Array | float = 1.0) -> Array:
        """Return minus the derivatives of the whole gradient in the direction of some entries."""
        step = np.zeros_like(at)
        step[moved] = STEP * np.asarray(amounts)
        _, above = self._standard.logp_dlogp(at + step)
        _, below = self._standard.logp_dlogp(at - step)
        return (below - above) / (2 * STEP)


class Expansion(NamedTuple):
    """Measurements of standardized effects at a point, effects on the first axis.

    Attributes
    ----------
    standardized, gradient : ndarray, shape (K, *shape)
        The effects, and the gradient of the log density.
    precision : ndarray, shape (K, K, *shape)
        Minus its second derivatives.
    slopes : mapping of str to ndarray, shape (K, *shape, n)
        Minus the derivatives of the gradient by other parameters.
    others : mapping of str to ndarray
        These parameters.
    """

    standardized: Array
    gradient: Array
    precision: Array
    slopes: Mapping[str, Array]
    others: Mapping[str, Array]

    def site(self, mean: Array, factor: Array) -> tuple[Site, Array]:
        """Return the site of effects ``mean + factor @ standardized``, and the effects; a diagonal factor has one axis less."""
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
        # The guard changes the curvature alone, not the slope at this point.
        site = Site(information, slope, slopes).projected()
        h = site.gradient + np.einsum("ab...,b...->a...", site.information, effect)
        h += sum(site.slopes[name] @ x for name, x in self.others.items())
        return Site(site.information, h, site.slopes).projected(), effect


def _inverse(factors: Array) -> Array:
    """Return the inverses of matrices on the first two axes, nan for those that have none."""
    if len(factors) == 1:
        return 1 / factors
    matrices = np.moveaxis(factors, (0, 1), (-2, -1))
    singular = ~(np.abs(np.linalg.det(matrices)) > 0)
    matrices = np.where(singular[..., None, None], np.eye(len(factors)), matrices)
    inverses = np.where(singular[..., None, None], np.nan, np.linalg.inv(matrices))
    return np.moveaxis(inverses, (-2, -1), (0, 1))


def _slices(model: "pm.Model", shape_info: Any) -> dict[str, slice]:
    """Return where the free variables are in the unconstrained point."""
    return {name: place for name, (place, _) in _layout(model, shape_info).items()}


def _layout(model: "pm.Model", shape_info: Any) -> dict[str, tuple[slice, tuple[int, ...]]]:
    """Return where the free variables are in the unconstrained point, and their lengths, which not all types know."""
    variables = {model.rvs_to_values[rv].name: rv.name for rv in model.free_RVs}
    of_values = list(zip(*shape_info, strict=True))[: len(variables)]
    return {variables[name]: (place, shape) for name, place, shape in of_values}


def _in_graph(sited: ModelWithSites, names: Block) -> list[Variable]:
    """Return mean and factor of effects that go together, as :class:`Expansion` takes them, and standardized effects."""
    rvs = [sited.model[name] for name in names]
    if isinstance(sited.model.rvs_to_transforms[rvs[0]], MatrixTransform):
        [name] = names
        return [
            sited.means[name].T,
            sited.factors[name][:, :, None],
            rvs[0].owner.op.standardized(rvs[0]),
        ]
    standardized = [rv.owner.op.standardized(rv) for rv in rvs]
    shaped = [
        [of[name] + pt.zeros_like(u) for name, u in zip(names, standardized, strict=True)]
        for of in (sited.means, sited.factors)
    ]
    return [*map(pt.stack, shaped), pt.stack(standardized)]


@node_rewriter([OpFromGraph])
def _inline(fgraph: FunctionGraph, node: Apply) -> list[Variable]:
    """Put the graph of a node in its place; to compile it on its own takes longer than the pilot."""
    return inline_ofg_node(node)


_inlined = in2out(_inline, ignore_newtrees=False)


def _hyperparameters(
    sited: ModelWithSites, shape_info: Any, blocks: Collection[Block]
) -> Callable[[Array], dict[Block, list[Array]]]:
    """Return a function from a point to mean, factor and standardized effects of those that go together."""
    model = sited.model
    wanted = [x for names in blocks for x in _in_graph(sited, names)]
    function = pytensor.function(
        [model.rvs_to_values[rv] for rv in model.free_RVs],
        rewrite_graph(model.replace_rvs_by_values(wanted), include=(), custom_rewrite=_inlined),
        # It is called a few times. The virtual machine's part in C may not be compiled yet.
        mode=Mode("py", None),
        on_unused_input="ignore",
    )
    layout = _layout(model, shape_info)
    layouts = [layout[rv.name] for rv in model.free_RVs]

    def evaluated(x: Array) -> dict[Block, list[Array]]:
        found = function(*(x[place].reshape(shape) for place, shape in layouts))
        return {names: found[3 * i : 3 * i + 3] for i, names in enumerate(blocks)}

    return evaluated
