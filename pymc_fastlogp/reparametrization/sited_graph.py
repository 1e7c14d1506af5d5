"""The graph of a model, in which effects get another value variable."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import pytensor.tensor as pt
from pymc.model.fgraph import ModelFreeRV, fgraph_from_model
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from pymc_fastlogp.models.freeze import with_symbolic_initial_values
from pymc_fastlogp.reparametrization.centered import centered
from pymc_fastlogp.reparametrization.correlated import Correlated, correlated_of
from pymc_fastlogp.reparametrization.crossed import Crossing, sited_crossed
from pymc_fastlogp.reparametrization.cycles import AnyEffect, without_circles
from pymc_fastlogp.reparametrization.effects import Effect, LeftAlone, depends_on, effect_of
from pymc_fastlogp.reparametrization.matrix_normal import precision_and_gradient, sited_effects
from pymc_fastlogp.reparametrization.scales import scales_in, sited_scale
from pymc_fastlogp.reparametrization.sited_normal import SitedNormal, site_transform
from pymc_fastlogp.reparametrization.sites import (
    Bundle,
    Elimination,
    Site,
    gradient_name,
    information_name,
    numbers_of,
    slope_name,
)
from pymc_fastlogp.reparametrization.zero_sum import ZeroSum, sited_zero_sum, zero_sum_of

if TYPE_CHECKING:
    import pymc as pm

# Of the entries of another parameter: a product with each effect's slopes is part of every evaluation.
MOST_OTHERS = 32


class SitedGraph:
    """The graph of a model, whose effects get sites one bundle after the other."""

    def __init__(self, model: "pm.Model", reasons: Mapping[str, str] | None = None):
        with _without_initial_values(model):
            self.fgraph, _ = fgraph_from_model(model)
        reasons = reasons or {}
        outputs = _known(self.fgraph)
        apart = (LeftAlone(x.name, reasons[x.name]) if x.name in reasons else x for x in outputs)
        known = [*without_circles(apart)]
        self.all = [x for x in known if not isinstance(x, LeftAlone)]
        self.left_alone = [x for x in known if isinstance(x, LeftAlone)]
        self._effects = {x.name: x for x in self.all}

    def _crossed(self) -> list[str]:
        """Return the effects that may be crossed with each other, the one of most groups first: vectors which no other is made from, each of its own."""
        others = [y for x in self.all if isinstance(x, Effect) for y in x.parameters]
        free = [x.owner.inputs[0] for x in self._free().values()]
        alone = [
            x
            for x in self.all
            if type(x) is Effect
            and x.variable.type.ndim == 1
            and not any(_go_together(x, y) for y in self.all if y is not x)
            and not any(depends_on(y, {x.variable}) for y in (*others, *free))
        ]
        variables = {x.variable for x in self.all}
        apart = [x for x in alone if not any(depends_on(y, variables) for y in x.parameters)]
        apart.sort(key=lambda x: -x.shape[0])
        return [x.name for x in apart] if len(apart) > 1 else []

    def effect(self, name: str) -> AnyEffect:
        """Return an effect as the graph now has it."""
        return self._effects[name]

    def found(self) -> Iterator[tuple[Bundle, Site]]:
        """Yield the effects that go together with sites that say nothing, which they are given."""
        crossed = self._crossed()
        remaining = [x.name for x in self.all if x.name not in crossed]
        while remaining:
            bundle = self._next_bundle(remaining)
            remaining = [name for name in remaining if name not in bundle]
            site = Site.nothing(*self._shape(bundle), self._others(bundle))
            numbers = numbers_of(bundle, site)
            constants = {name: pt.constant(x) for name, x in numbers.items()}
            self._put(bundle, constants, list(site.slopes))
            yield bundle, site
        for name in crossed:
            site = Site.nothing(*self._shape((name,)), self._others((name,), crossed))
            yield (name,), replace(site, sign=0.0)

    def put_scales(self, names: Sequence[str]) -> list[str]:
        """Give the scales of effects their transform, and return their names."""
        scales = scales_in([self._effects[name].factor for name in names])
        for old in scales:
            new = sited_scale(old)
            self.fgraph.replace(old, new, import_missing=True)
            self._effects = {name: x.where(old, new) for name, x in self._effects.items()}
        return [x.owner.op.name for x in scales]

    def put_all(self, sites: Mapping[Bundle, Site], numbers: Mapping[str, Variable]) -> None:
        """Give all effects their sites, whose numbers are these variables."""
        for bundle, site in sites.items():
            if site.is_everything:
                self._put_centered(bundle)
            elif site.sign is None:
                self._put(bundle, numbers, list(site.slopes))
        crossed = [bundle[0] for bundle, site in sites.items() if site.sign is not None]
        if crossed:
            moved = [self._moved(name, numbers, list(sites[name,].slopes)) for name in crossed]
            names = map(gradient_name, crossed)
            self._put_crossed(crossed, {**numbers, **dict(zip(names, moved, strict=True))})

    def _free(self) -> dict[str, Variable]:
        """Return the free variables of the graph by name."""
        outputs = self.fgraph.outputs
        free = [x for x in outputs if x.owner and isinstance(x.owner.op, ModelFreeRV)]
        return {x.owner.op.name: x for x in free}

    def _others(self, bundle: Bundle, crossed: Sequence[str] = ()) -> dict[str, int]:
        """Return the lengths of other parameters on which effects may depend through the likelihood, not through effects that are crossed with them."""
        effects = [self._effects[name] for name in bundle]
        # What moves all effects alike is nothing that effects could take back which sum to zero.
        if any(x.variable.type.ndim != 1 or isinstance(x, ZeroSum) for x in effects):
            return {}
        all_effects = effects + [self._effects[name] for name in crossed]
        parts = [y for x in all_effects if isinstance(x, Effect) for y in x.parameters]
        variables = {x.variable for x in effects}
        found = {}
        for name, x in self._free().items():
            if name in self._effects or x.owner.op.transform is not None or x.type.ndim > 1:
                continue
            n = prod(x.type.shape) if None not in x.type.shape else MOST_OTHERS + 1
            is_apart = not any(depends_on(y, {x}) for y in parts) and not depends_on(x, variables)
            if n <= MOST_OTHERS and is_apart:
                found[name] = n
        return found

    def _shape(self, bundle: Bundle) -> tuple[int, tuple[int, ...]]:
        """Return how many effects a group has, and the shape of the groups."""
        first = self._effects[bundle[0]]
        if isinstance(first, Correlated):
            return first.n_effects, (first.variable.type.shape[first.group_axis],)
        return len(bundle), first.shape

    def _next_bundle(self, remaining: Sequence[str]) -> Bundle:
        """Return the first effect and those that go together with it: of the same dims, where none is made from another."""
        bundle = [self._effects[remaining[0]]]
        for name in remaining[1:]:
            effect = self._effects[name]
            if all(_go_together(effect, other) for other in bundle):
                bundle.append(effect)
        return tuple(effect.name for effect in bundle)

    def _put(
        self, bundle: Bundle, numbers: Mapping[str, Variable], others: Sequence[str] = ()
    ) -> None:
        """Give effects that go together a site, whose gradient depends on other parameters."""
        effects = [self._effects[name] for name in bundle]
        if others:
            moved = {gradient_name(name): self._moved(name, numbers, others) for name in bundle}
            numbers = {**numbers, **moved}
        if isinstance(effects[0], Correlated):
            self._put_correlated(effects[0], numbers)
            return
        apart = [x for x in effects if isinstance(x, Effect)]
        elimination = Elimination([effect.without_circle() for effect in apart], numbers)
        # From the last one, which depends on no other, to the first.
        for k in reversed(range(len(apart))):
            gradient = elimination.gradient(k, apart[k + 1 :])
            new = _sited(apart[k], gradient, elimination.information(k))
            self._replace(apart[k], new)
            apart[k] = replace(apart[k], variable=new)

    def _put_centered(self, bundle: Bundle) -> None:
        for name in bundle:
            effect = self._effects[name]
            if isinstance(effect, Effect) and not effect.is_centered:
                self._replace(effect, centered(effect))

    def _moved(self, name: str, numbers: Mapping[str, Variable], others: Sequence[str]) -> Variable:
        """Return the gradient of a site where other parameters are what they are."""
        free = self._free()
        gradient = numbers[gradient_name(name)]
        for other in others:
            gradient = gradient - numbers[slope_name(name, other)] @ pt.atleast_1d(free[other])
        return gradient

    def _put_crossed(self, names: Sequence[str], numbers: Mapping[str, Variable]) -> None:
        """Give crossed effects their sites, from the last one, which depends on no other, to the first."""
        effects = [x for name in names if isinstance(x := self._effects[name], Effect)]
        crossing = Crossing([x.without_circle() for x in effects], numbers)
        level = None
        for k in reversed(range(len(effects))):
            place = crossing.place(k, level)
            if k == 0:
                self._replace(effects[0], _sited(effects[0], *place))
                return
            new = sited_crossed(effects[k], place)
            self._replace(effects[k], new)
            own = crossing.level(k, replace(effects[k], variable=new))
            level = own if level is None else level + own

    def _put_correlated(self, effects: Correlated, numbers: Mapping[str, Variable]) -> None:
        name = effects.name
        fitting = effects.without_circle()
        place = precision_and_gradient(
            fitting, numbers[information_name(name, name)], numbers[gradient_name(name)]
        )
        self._replace(effects, sited_effects(effects, place, f"{name}_site__"))

    def _replace(self, effect: AnyEffect, new: Variable) -> None:
        """Put a variable where an effect was."""
        old = effect.variable
        self.fgraph.replace(old, new, import_missing=True)
        self._effects = {name: x.where(old, new) for name, x in self._effects.items()}
        self._effects[effect.name] = replace(self._effects[effect.name], variable=new)


def _known(fgraph: FunctionGraph) -> Iterator[AnyEffect | LeftAlone]:
    """Yield what is known of each free variable, in the order of the model."""
    for x in fgraph.outputs:
        if x.owner is not None and isinstance(x.owner.op, ModelFreeRV):
            yield correlated_of(fgraph, x) or zero_sum_of(fgraph, x) or effect_of(fgraph, x)


@contextmanager
def _without_initial_values(model: "pm.Model") -> Iterator[None]:
    """Take initial values away for a while, as PyMC itself does to make a graph of a model."""
    if names := with_symbolic_initial_values(model):
        raise NotImplementedError(f"{names[0]} has a symbolic initial value")
    kept: dict[Any, Any] = dict(model.rvs_to_initial_values)
    try:
        model.rvs_to_initial_values.update(dict.fromkeys(kept))
        yield
    finally:
        model.rvs_to_initial_values.update(kept)


def _go_together(one: AnyEffect, other: AnyEffect) -> bool:
    if isinstance(one, Correlated) or isinstance(other, Correlated):
        return False
    if isinstance(one, ZeroSum) != isinstance(other, ZeroSum):
        return False
    same = one.dims == other.dims if one.dims or other.dims else _same_lengths(one, other)
    return same and not (_is_made_from(one, other) or _is_made_from(other, one))


def _same_lengths(one: Effect, other: Effect) -> bool:
    return None not in one.shape and one.shape == other.shape


def _is_made_from(one: Effect, other: Effect) -> bool:
    return any(depends_on(x, {other.variable}) for x in one.parameters)


def _sited(effect: Effect, gradient: Variable, information: Variable) -> Variable:
    """Return the free variable with its site."""
    if isinstance(effect, ZeroSum):
        return sited_zero_sum(effect, gradient, information)
    rv, value = effect.variable.owner.inputs
    rng, size, mu, sigma = rv.owner.inputs
    new = SitedNormal.rv_op(mu, sigma, effect.scale, gradient, information, size=size, rng=rng)
    new_value = value.type(name=f"{effect.name}_{site_transform.name}__")
    return ModelFreeRV(effect.name, effect.dims, site_transform)(new, new_value)
