"""Graph of a model in which the value variables of effects are replaced."""

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

from pymc_fastlogp.models.freeze import with_symbolic_initial_values, without_partly_named_dims
from pymc_fastlogp.reparametrization.correlated import Correlated, find_correlated
from pymc_fastlogp.reparametrization.crossed import Crossing, partially_centered_crossed
from pymc_fastlogp.reparametrization.effects import (
    MUTUAL_PRODUCT,
    Effect,
    Unchanged,
    depends_on,
    find_effect,
)
from pymc_fastlogp.reparametrization.elimination import Elimination
from pymc_fastlogp.reparametrization.matrix_normal import (
    centered_correlated,
    partially_centered_correlated,
    precision_and_gradient,
)
from pymc_fastlogp.reparametrization.partially_centered import (
    centered_variable,
    partially_centered_normal,
)
from pymc_fastlogp.reparametrization.scale_transform import scales_in, with_scale_transform
from pymc_fastlogp.reparametrization.sites import (
    Block,
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

# Length of another parameter that shifts a site. Every evaluation multiplies the parameter by the slopes of each effect.
MAX_COVARIATES = 32


class EffectGraph:
    """Graph of a model whose effects get sites, one block after the other.

    Parameters
    ----------
    model : pymc.Model
        The model, which is not changed.
    reasons : mapping of str to str, optional
        Variables that keep their parametrization, and why.

    Attributes
    ----------
    fgraph : FunctionGraph
        The graph.
    partly_named : dict of str to tuple
        Dims of variables that PyMC can't put into the graph.
    all : list of Effect or Correlated
        The effects, as matched in the model.
    unchanged : list of Unchanged
        All other free variables.
    """

    def __init__(self, model: "pm.Model", reasons: Mapping[str, str] | None = None):
        with _without_initial_values(model), without_partly_named_dims(model) as partly_named:
            self.fgraph, _ = fgraph_from_model(model)
        self.partly_named = partly_named
        reasons = reasons or {}
        outputs = _match_all(self.fgraph)
        apart = (Unchanged(x.name, reasons[x.name]) if x.name in reasons else x for x in outputs)
        known = [*exclude_mutual_products(apart)]
        self.all = [x for x in known if not isinstance(x, Unchanged)]
        self.unchanged = [x for x in known if isinstance(x, Unchanged)]
        self._effects = {x.name: x for x in self.all}

    def _crossed(self) -> list[str]:
        """Return candidates for crossed effects, largest first: vectors on which no other effect depends, each in a separate block."""
        others = [y for x in self.all if isinstance(x, Effect) for y in x.parameters]
        free = [x.owner.inputs[0] for x in self._free().values()]
        alone = [
            x
            for x in self.all
            if type(x) is Effect
            and x.variable.type.ndim == 1
            and not any(_share_site(x, y) for y in self.all if y is not x)
            and not any(depends_on(y, {x.variable}) for y in (*others, *free))
        ]
        variables = {x.variable for x in self.all}
        apart = [x for x in alone if not any(depends_on(y, variables) for y in x.parameters)]
        apart.sort(key=lambda x: -x.shape[0])
        return [x.name for x in apart] if len(apart) > 1 else []

    def effect(self, name: str) -> AnyEffect:
        """Return an effect in the current graph."""
        return self._effects[name]

    def insert_flat_sites(self) -> Iterator[tuple[Block, Site]]:
        """Insert flat sites, and yield each block with its site."""
        crossed = self._crossed()
        remaining = [x.name for x in self.all if x.name not in crossed]
        while remaining:
            block = self._next_block(remaining)
            remaining = [name for name in remaining if name not in block]
            site = Site.flat(*self._shape(block), self._covariates(block))
            arrays = site_arrays(block, site)
            constants = {name: pt.constant(x) for name, x in arrays.items()}
            self._insert(block, constants, list(site.slopes))
            yield block, site
        for name in crossed:
            site = Site.flat(*self._shape((name,)), self._covariates((name,), crossed))
            yield (name,), replace(site, sign=0.0)

    def transform_scales(self, names: Sequence[str]) -> list[str]:
        """Set the transform of the scales of effects, and return the names of these scales."""
        scales = scales_in([self._effects[name].factor for name in names])
        for old in scales:
            new = with_scale_transform(old)
            self.fgraph.replace(old, new, import_missing=True)
            self._effects = {name: x.substitute(old, new) for name, x in self._effects.items()}
        return [x.owner.op.name for x in scales]

    def insert_sites(self, sites: Mapping[Block, Site], arrays: Mapping[str, Variable]) -> None:
        """Insert sites, whose arrays are given as variables by name."""
        for block, site in sites.items():
            if site.is_infinite:
                self._insert_centered(block)
            elif site.sign is None:
                self._insert(block, arrays, list(site.slopes))
        crossed = [block[0] for block, site in sites.items() if site.sign is not None]
        if crossed:
            moved = [
                self._conditional_gradient(name, arrays, list(sites[name,].slopes))
                for name in crossed
            ]
            names = map(gradient_name, crossed)
            self._insert_crossed(crossed, {**arrays, **dict(zip(names, moved, strict=True))})

    def _free(self) -> dict[str, Variable]:
        """Return the free variables of the graph by name."""
        outputs = self.fgraph.outputs
        free = [x for x in outputs if x.owner and isinstance(x.owner.op, ModelFreeRV)]
        return {x.owner.op.name: x for x in free}

    def _covariates(self, block: Block, crossed: Sequence[str] = ()) -> dict[str, int]:
        """Return the lengths of other parameters that may shift the sites of a block through the likelihood.

        Parameters of the priors of the block, and of effects crossed with the block, are excluded.
        """
        effects = [self._effects[name] for name in block]
        # Effects that sum to zero cannot compensate a shift that is common to all groups.
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
        """Return the number of effects per group, and the shape of the groups."""
        first = self._effects[block[0]]
        if isinstance(first, Correlated):
            return first.n_effects, (first.variable.type.shape[first.group_axis],)
        return len(block), first.shape

    def _next_block(self, remaining: Sequence[str]) -> Block:
        """Return the first effect and the effects that share a joint site with it: same dims, and none depends on another."""
        block = [self._effects[remaining[0]]]
        for name in remaining[1:]:
            effect = self._effects[name]
            if all(_share_site(effect, other) for other in block):
                block.append(effect)
        return tuple(effect.name for effect in block)

    def _insert(
        self, block: Block, arrays: Mapping[str, Variable], others: Sequence[str] = ()
    ) -> None:
        """Insert the site of a block, whose gradient depends on the parameters ``others``."""
        effects = [self._effects[name] for name in block]
        if others:
            moved = {
                gradient_name(name): self._conditional_gradient(name, arrays, others)
                for name in block
            }
            arrays = {**arrays, **moved}
        if isinstance(effects[0], Correlated):
            self._insert_correlated(effects[0], arrays)
            return
        apart = [x for x in effects if isinstance(x, Effect)]
        elimination = Elimination([effect.without_cyclic_terms() for effect in apart], arrays)
        # Each effect depends on those after it, so the last one is replaced first.
        for k in reversed(range(len(apart))):
            gradient = elimination.gradient(k, apart[k + 1 :])
            new = _partially_centered(apart[k], [gradient, elimination.information(k)])
            self._replace(apart[k], new)
            apart[k] = replace(apart[k], variable=new)

    def _insert_centered(self, block: Block) -> None:
        for name in block:
            effect = self._effects[name]
            if effect.is_centered:
                continue
            if isinstance(effect, Correlated):
                self._replace(effect, centered_correlated(effect))
            else:
                self._replace(effect, centered_variable(effect))

    def _conditional_gradient(
        self, name: str, arrays: Mapping[str, Variable], others: Sequence[str]
    ) -> Variable:
        """Return the gradient of a site given other parameters: ``h - B @ x``."""
        free = self._free()
        gradient = arrays[gradient_name(name)]
        for other in others:
            gradient = gradient - arrays[slope_name(name, other)] @ pt.atleast_1d(free[other])
        return gradient

    def _insert_crossed(self, names: Sequence[str], arrays: Mapping[str, Variable]) -> None:
        """Insert the sites of crossed effects. Each depends on those after it, so the last one is replaced first."""
        effects = [x for name in names if isinstance(x := self._effects[name], Effect)]
        crossing = Crossing([x.without_cyclic_terms() for x in effects], arrays)
        shared_mean = None
        for k in reversed(range(len(effects))):
            inputs = crossing.transform_inputs(k, shared_mean)
            if k == 0:
                self._replace(effects[0], _partially_centered(effects[0], inputs))
                return
            new = partially_centered_crossed(effects[k], inputs)
            self._replace(effects[k], new)
            own = crossing.shared_mean(k, replace(effects[k], variable=new))
            shared_mean = own if shared_mean is None else shared_mean + own

    def _insert_correlated(self, effects: Correlated, arrays: Mapping[str, Variable]) -> None:
        name = effects.name
        fitting = effects.without_cyclic_terms()
        inputs = precision_and_gradient(
            fitting, arrays[information_name(name, name)], arrays[gradient_name(name)]
        )
        self._replace(effects, partially_centered_correlated(effects, inputs))

    def _replace(self, effect: AnyEffect, new: Variable) -> None:
        """Replace the variable of an effect."""
        old = effect.variable
        self.fgraph.replace(old, new, import_missing=True)
        self._effects = {name: x.substitute(old, new) for name, x in self._effects.items()}
        self._effects[effect.name] = replace(self._effects[effect.name], variable=new)


def _match_all(fgraph: FunctionGraph) -> Iterator[AnyEffect | Unchanged]:
    """Match each free variable, in the order of the model."""
    for x in fgraph.outputs:
        if x.owner is not None and isinstance(x.owner.op, ModelFreeRV):
            yield find_correlated(fgraph, x) or find_zero_sum(fgraph, x) or find_effect(fgraph, x)


@contextmanager
def _without_initial_values(model: "pm.Model") -> Iterator[None]:
    """Remove initial values temporarily: PyMC refuses to build a graph of a model with initial values."""
    if names := with_symbolic_initial_values(model):
        raise NotImplementedError(f"{names[0]} has a symbolic initial value")
    saved: dict[Any, Any] = dict(model.rvs_to_initial_values)
    try:
        model.rvs_to_initial_values.update(dict.fromkeys(saved))
        yield
    finally:
        model.rvs_to_initial_values.update(saved)


def _share_site(one: AnyEffect, other: AnyEffect) -> bool:
    """Return whether two effects may have a joint site."""
    if isinstance(one, Correlated) or isinstance(other, Correlated):
        return False
    if isinstance(one, ZeroSum) != isinstance(other, ZeroSum):
        return False
    same = one.dims == other.dims if one.dims or other.dims else _same_lengths(one, other)
    return same and not (_depends_on_effect(one, other) or _depends_on_effect(other, one))


def _same_lengths(one: Effect, other: Effect) -> bool:
    return None not in one.shape and one.shape == other.shape


def _depends_on_effect(one: Effect, other: Effect) -> bool:
    return any(depends_on(x, {other.variable}) for x in one.parameters)


def _partially_centered(effect: Effect, inputs: Sequence[Variable]) -> Variable:
    """Return the free variable of an effect, partially centered by gradient and information of its site."""
    if isinstance(effect, ZeroSum):
        return partially_centered_zero_sum(effect, *inputs)
    return partially_centered_normal(effect, inputs)


def exclude_mutual_products(
    matched: Iterable[AnyEffect | Unchanged],
) -> Iterator[AnyEffect | Unchanged]:
    """Keep one effect of each set of effects that multiply each other.

    The conditional mean of a product of two standard normal vectors depends on both, so only one of them gets a site: the largest.
    """
    matched = [*matched]
    effects = [x for x in matched if not isinstance(x, Unchanged)]
    read_by: dict[Variable, set[Variable]] = {}
    for effect in sorted(effects, key=_sort_key):
        read = {*ancestors(effect.multipliers)}
        if not _closes_cycle(effect.variable, read, read_by):
            read_by[effect.variable] = read
    for x in matched:
        is_left = not isinstance(x, Unchanged) and x.variable not in read_by
        yield Unchanged(x.name, MUTUAL_PRODUCT) if is_left else x


def _sort_key(effect: AnyEffect) -> tuple[int, str]:
    """Return a sort key that is the same in copies of a model, whose variables may be in another order."""
    return -prod(n or 1 for n in effect.variable.type.shape), effect.name


def _closes_cycle(
    effect: Variable, read: set[Variable], read_by: dict[Variable, set[Variable]]
) -> bool:
    """Return whether the multipliers of an effect depend on an effect that is multiplied by it, directly or through other effects."""
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
