"""The graph of a model, in which effects get another value variable."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import pytensor.tensor as pt
from pymc.model.fgraph import ModelFreeRV, fgraph_from_model
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors

from pymc_fastlogp.models.freeze import with_symbolic_initial_values
from pymc_fastlogp.reparametrization.correlated import Correlated, find_correlated
from pymc_fastlogp.reparametrization.crossed import Crossing, partially_centered_crossed
from pymc_fastlogp.reparametrization.effects import (
    MUTUAL_PRODUCT,
    Effect,
    Unchanged,
    depends_on,
    find_effect,
)
from pymc_fastlogp.reparametrization.matrix_normal import (
    partially_centered_correlated,
    precision_and_gradient,
)
from pymc_fastlogp.reparametrization.partially_centered import (
    PartiallyCenteredNormal,
    centered,
    site_transform,
)
from pymc_fastlogp.reparametrization.scales import scales_in, with_scale_transform
from pymc_fastlogp.reparametrization.sites import (
    Block,
    Elimination,
    Site,
    gradient_name,
    information_name,
    site_arrays,
    slope_name,
)
from pymc_fastlogp.reparametrization.zero_sum import (
    ZeroSum,
    find_zero_sum,
    partially_centered_zero_sum,
)

if TYPE_CHECKING:
    import pymc as pm

type AnyEffect = Effect | Correlated

# Of the entries of another parameter: a product with each effect's slopes is part of every evaluation.
MAX_COVARIATES = 32


class EffectGraph:
    """The graph of a model, whose effects get sites one block after the other."""

    def __init__(self, model: "pm.Model", reasons: Mapping[str, str] | None = None):
        with _without_initial_values(model):
            self.fgraph, _ = fgraph_from_model(model)
        reasons = reasons or {}
        outputs = _known(self.fgraph)
        apart = (Unchanged(x.name, reasons[x.name]) if x.name in reasons else x for x in outputs)
        known = [*exclude_mutual_products(apart)]
        self.all = [x for x in known if not isinstance(x, Unchanged)]
        self.unchanged = [x for x in known if isinstance(x, Unchanged)]
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

    def found(self) -> Iterator[tuple[Block, Site]]:
        """Yield the effects that go together with sites that say flat, which they are given."""
        crossed = self._crossed()
        remaining = [x.name for x in self.all if x.name not in crossed]
        while remaining:
            block = self._next_bundle(remaining)
            remaining = [name for name in remaining if name not in block]
            site = Site.flat(*self._shape(block), self._others(block))
            numbers = site_arrays(block, site)
            constants = {name: pt.constant(x) for name, x in numbers.items()}
            self._put(block, constants, list(site.slopes))
            yield block, site
        for name in crossed:
            site = Site.flat(*self._shape((name,)), self._others((name,), crossed))
            yield (name,), replace(site, sign=0.0)

    def put_scales(self, names: Sequence[str]) -> list[str]:
        """Give the scales of effects their transform, and return their names."""
        scales = scales_in([self._effects[name].factor for name in names])
        for old in scales:
            new = with_scale_transform(old)
            self.fgraph.replace(old, new, import_missing=True)
            self._effects = {name: x.substitute(old, new) for name, x in self._effects.items()}
        return [x.owner.op.name for x in scales]

    def put_all(self, sites: Mapping[Block, Site], numbers: Mapping[str, Variable]) -> None:
        """Give all effects their sites, whose numbers are these variables."""
        for block, site in sites.items():
            if site.is_infinite:
                self._put_centered(block)
            elif site.sign is None:
                self._put(block, numbers, list(site.slopes))
        crossed = [block[0] for block, site in sites.items() if site.sign is not None]
        if crossed:
            moved = [self._moved(name, numbers, list(sites[name,].slopes)) for name in crossed]
            names = map(gradient_name, crossed)
            self._put_crossed(crossed, {**numbers, **dict(zip(names, moved, strict=True))})

    def _free(self) -> dict[str, Variable]:
        """Return the free variables of the graph by name."""
        outputs = self.fgraph.outputs
        free = [x for x in outputs if x.owner and isinstance(x.owner.op, ModelFreeRV)]
        return {x.owner.op.name: x for x in free}

    def _others(self, block: Block, crossed: Sequence[str] = ()) -> dict[str, int]:
        """Return the lengths of other parameters on which effects may depend through the likelihood, not through effects that are crossed with them."""
        effects = [self._effects[name] for name in block]
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
            n = prod(x.type.shape) if None not in x.type.shape else MAX_COVARIATES + 1
            is_apart = not any(depends_on(y, {x}) for y in parts) and not depends_on(x, variables)
            if n <= MAX_COVARIATES and is_apart:
                found[name] = n
        return found

    def _shape(self, block: Block) -> tuple[int, tuple[int, ...]]:
        """Return how many effects a group has, and the shape of the groups."""
        first = self._effects[block[0]]
        if isinstance(first, Correlated):
            return first.n_effects, (first.variable.type.shape[first.group_axis],)
        return len(block), first.shape

    def _next_bundle(self, remaining: Sequence[str]) -> Block:
        """Return the first effect and those that go together with it: of the same dims, where none is made from another."""
        block = [self._effects[remaining[0]]]
        for name in remaining[1:]:
            effect = self._effects[name]
            if all(_go_together(effect, other) for other in block):
                block.append(effect)
        return tuple(effect.name for effect in block)

    def _put(
        self, block: Block, numbers: Mapping[str, Variable], others: Sequence[str] = ()
    ) -> None:
        """Give effects that go together a site, whose gradient depends on other parameters."""
        effects = [self._effects[name] for name in block]
        if others:
            moved = {gradient_name(name): self._moved(name, numbers, others) for name in block}
            numbers = {**numbers, **moved}
        if isinstance(effects[0], Correlated):
            self._put_correlated(effects[0], numbers)
            return
        apart = [x for x in effects if isinstance(x, Effect)]
        elimination = Elimination([effect.without_cyclic_terms() for effect in apart], numbers)
        # From the last one, which depends on no other, to the first.
        for k in reversed(range(len(apart))):
            gradient = elimination.gradient(k, apart[k + 1 :])
            new = _partially_centered(apart[k], gradient, elimination.information(k))
            self._replace(apart[k], new)
            apart[k] = replace(apart[k], variable=new)

    def _put_centered(self, block: Block) -> None:
        for name in block:
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
        crossing = Crossing([x.without_cyclic_terms() for x in effects], numbers)
        level = None
        for k in reversed(range(len(effects))):
            place = crossing.place(k, level)
            if k == 0:
                self._replace(effects[0], _partially_centered(effects[0], *place))
                return
            new = partially_centered_crossed(effects[k], place)
            self._replace(effects[k], new)
            own = crossing.level(k, replace(effects[k], variable=new))
            level = own if level is None else level + own

    def _put_correlated(self, effects: Correlated, numbers: Mapping[str, Variable]) -> None:
        name = effects.name
        fitting = effects.without_cyclic_terms()
        place = precision_and_gradient(
            fitting, numbers[information_name(name, name)], numbers[gradient_name(name)]
        )
        self._replace(effects, partially_centered_correlated(effects, place, f"{name}_site__"))

    def _replace(self, effect: AnyEffect, new: Variable) -> None:
        """Put a variable where an effect was."""
        old = effect.variable
        self.fgraph.replace(old, new, import_missing=True)
        self._effects = {name: x.substitute(old, new) for name, x in self._effects.items()}
        self._effects[effect.name] = replace(self._effects[effect.name], variable=new)


def _known(fgraph: FunctionGraph) -> Iterator[AnyEffect | Unchanged]:
    """Yield what is known of each free variable, in the order of the model."""
    for x in fgraph.outputs:
        if x.owner is not None and isinstance(x.owner.op, ModelFreeRV):
            yield find_correlated(fgraph, x) or find_zero_sum(fgraph, x) or find_effect(fgraph, x)


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


def _partially_centered(effect: Effect, gradient: Variable, information: Variable) -> Variable:
    """Return the free variable with its site."""
    if isinstance(effect, ZeroSum):
        return partially_centered_zero_sum(effect, gradient, information)
    rv, value = effect.variable.owner.inputs
    rng, size, mu, sigma = rv.owner.inputs
    new = PartiallyCenteredNormal.rv_op(
        mu, sigma, effect.scale, gradient, information, size=size, rng=rng
    )
    new_value = value.type(name=f"{effect.name}_{site_transform.name}__")
    return ModelFreeRV(effect.name, effect.dims, site_transform)(new, new_value)


def exclude_mutual_products(
    known: Iterable[AnyEffect | Unchanged],
) -> Iterator[AnyEffect | Unchanged]:
    """Yield what is known of free variables; of effects that multiply each other, also by way of others, all but the largest are left alone."""
    known = [*known]
    effects = [x for x in known if not isinstance(x, Unchanged)]
    read_by: dict[Variable, set[Variable]] = {}
    for effect in sorted(effects, key=_order):
        read = {*ancestors(effect.multipliers)}
        if not _leads_to(effect.variable, read, read_by):
            read_by[effect.variable] = read
    for x in known:
        is_left = not isinstance(x, Unchanged) and x.variable not in read_by
        yield Unchanged(x.name, MUTUAL_PRODUCT) if is_left else x


def _order(effect: AnyEffect) -> tuple[int, str]:
    """Return what is the same in copies of a model, whose variables may be in another order."""
    return -prod(n or 1 for n in effect.variable.type.shape), effect.name


def _leads_to(
    effect: Variable, read: set[Variable], read_by: dict[Variable, set[Variable]]
) -> bool:
    """Return whether what multiplies an effect reads another that is multiplied by it, or so in turn."""
    reached = {x for x in read_by if x in read}
    new = list(reached)
    while new:
        of_one = read_by[new.pop()]
        if effect in of_one:
            return True
        further = {x for x in read_by if x in of_one} - reached
        reached |= further
        new += further
    return False
