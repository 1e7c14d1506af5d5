"""The model with sites: the same variables, of which effects have another value variable."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pymc.model.fgraph import ModelFreeRV, fgraph_from_model, model_from_fgraph
from pytensor.compile.ops import view_op
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph

from pymc_fastlogp.parametrisation.effects import Effect, LeftAlone, depends_on, effects_in
from pymc_fastlogp.parametrisation.normal import SitedNormal, site_transform
from pymc_fastlogp.parametrisation.sites import Elimination, Site, SiteVariables

if TYPE_CHECKING:
    import pymc as pm

Bundle = tuple[str, ...]

HAS_START = "it has an initial value"


@dataclass(frozen=True)
class Found:
    """What is known of the free variables of a model.

    Attributes
    ----------
    bundles : tuple of tuple of str
        Names of effects that go together, in the order of elimination.
    kinds : mapping of str to str
        How the model writes each.
    left_alone : tuple of LeftAlone
        All other free variables.
    """

    bundles: tuple[Bundle, ...]
    kinds: Mapping[str, str]
    left_alone: tuple[LeftAlone, ...]


def found_in(model: "pm.Model", left_out: Collection[str] = ()) -> Found:
    """Find the effects of a model.

    Parameters
    ----------
    model : pymc.Model
        With data and lengths of dimensions that are constants.
    left_out : collection of str
        Names of variables that stay as they are, besides those that have initial values in the model.

    Raises
    ------
    NotImplementedError
        If PyMC can't make a graph of the model, as with symbolic initial values.
    ValueError
        If the model is part of another.
    """
    started = {rv.name for rv, value in model.rvs_to_initial_values.items() if value is not None}
    sited = _Sited(model, started | {*left_out})
    bundles = tuple(sited.put_all())
    return Found(
        bundles,
        {effect.name: effect.kind for effect in sited.all},
        tuple(sited.left_alone),
    )


class Sited(NamedTuple):
    """A model with sites.

    Attributes
    ----------
    model : pymc.Model
        The model.
    means, scales : mapping of str to Variable
        Of the effects, in the graph of the model.
    shared : mapping of str to SharedVariable
        The numbers of sites, where they are not constants.
    """

    model: "pm.Model"
    means: Mapping[str, Variable]
    scales: Mapping[str, Variable]
    shared: Mapping[str, Any]


def with_sites(
    model: "pm.Model", sites: Mapping[Bundle, Site], *, is_shared: bool = False
) -> Sited:
    """Return the model with sites.

    Parameters
    ----------
    model : pymc.Model
        Left as it is.
    sites : mapping of tuple of str to Site
        For each bundle that was found.
    is_shared : bool
        Whether sites are shared variables, or else constants.
    """
    sited = _Sited(model)
    shared: dict[str, Any] = {}
    for bundle, site in sites.items():
        variables = SiteVariables(bundle, site, is_shared=is_shared)
        sited.put(bundle, variables)
        shared |= variables.shared
    names = [name for bundle in sites for name in bundle]
    # As outputs of the graph they are kept up to date while the model is made of it.
    for name in names:
        sited.fgraph.add_output(view_op(sited.effect(name).mean), import_missing=True)
        sited.fgraph.add_output(view_op(sited.effect(name).scale), import_missing=True)
    new = model_from_fgraph(sited.fgraph, mutate_fgraph=True)
    # Effects are now made from those that go with them, which the new model has before them.
    order = [rv.name for rv in model.free_RVs]
    new.free_RVs.sort(key=lambda rv: order.index(rv.name))
    for rv, value in model.rvs_to_initial_values.items():
        new.set_initval(new[rv.name], value)
    parts = sited.fgraph.outputs[-2 * len(names) :]
    means, scales = (dict(zip(names, parts[i::2], strict=True)) for i in range(2))
    return Sited(new, means, scales, shared)


class _Sited:
    """The graph of a model, whose effects get sites one bundle after the other."""

    def __init__(self, model: "pm.Model", left_out: Collection[str] = ()):
        with _without_initial_values(model):
            self.fgraph, _ = fgraph_from_model(model)
        known = [
            LeftAlone(x.name, HAS_START) if x.name in left_out else x
            for x in effects_in(self.fgraph)
        ]
        self.all = [x for x in known if isinstance(x, Effect)]
        self.left_alone = [x for x in known if isinstance(x, LeftAlone)]
        self._effects = {x.name: x for x in self.all}

    def effect(self, name: str) -> Effect:
        """Return an effect as the graph now has it."""
        return self._effects[name]

    def put_all(self) -> Iterator[Bundle]:
        """Give all effects sites that say nothing, and yield those that go together."""
        remaining = [x.name for x in self.all]
        while remaining:
            bundle = self._next_bundle(remaining)
            remaining = [name for name in remaining if name not in bundle]
            self.put(bundle, SiteVariables(bundle, Site.nothing(len(bundle), ()), is_shared=False))
            yield bundle

    def _next_bundle(self, remaining: Sequence[str]) -> Bundle:
        """Return the first effect and those that go together with it: of the same dims, where none is made from another."""
        bundle = [self._effects[remaining[0]]]
        for name in remaining[1:]:
            effect = self._effects[name]
            if all(_go_together(effect, other) for other in bundle):
                bundle.append(effect)
        return tuple(effect.name for effect in bundle)

    def put(self, bundle: Bundle, variables: SiteVariables) -> None:
        """Give effects that go together a site."""
        effects = [self._effects[name] for name in bundle]
        elimination = Elimination([_without_circle(effect) for effect in effects], variables)
        # From the last one, which depends on no other, to the first.
        for k in reversed(range(len(effects))):
            location = elimination.location(k, effects[k], effects[k + 1 :])
            old = effects[k].variable
            new = _replaced(self.fgraph, effects[k], location, elimination.precisions[k])
            effects[k] = replace(effects[k], variable=new)
            self._effects = {
                name: replace(x, variable=new) if x.variable is old else x.where(old, new)
                for name, x in self._effects.items()
            }


@contextmanager
def _without_initial_values(model: "pm.Model") -> Iterator[None]:
    """Take initial values away for a while, as PyMC itself does to make a graph of a model."""
    kept: dict[Any, Any] = dict(model.rvs_to_initial_values)
    for rv, value in kept.items():
        if isinstance(value, Variable) and not isinstance(value, Constant):
            raise NotImplementedError(f"{rv.name} has a symbolic initial value")
    try:
        model.rvs_to_initial_values.update(dict.fromkeys(kept))
        yield
    finally:
        model.rvs_to_initial_values.update(kept)


def _go_together(one: Effect, other: Effect) -> bool:
    same = one.dims == other.dims if one.dims or other.dims else _same_lengths(one, other)
    return same and not (_is_made_from(one, other) or _is_made_from(other, one))


def _same_lengths(one: Effect, other: Effect) -> bool:
    shape = one.variable.type.shape
    return None not in shape and shape == other.variable.type.shape


def _is_made_from(one: Effect, other: Effect) -> bool:
    return any(depends_on(x, {other.variable}) for x in (*one.terms, *one.factors))


def _without_circle(effect: Effect) -> Effect:
    """Return an effect without terms of its mean that are now made from itself, as where two effects are added to each other."""
    if effect.is_centred:
        return effect
    terms = tuple(x for x in effect.terms if not depends_on(x, {effect.variable}))
    return replace(effect, terms=terms)


def _replaced(
    fgraph: FunctionGraph, effect: Effect, location: Variable, precision: Variable
) -> Variable:
    """Put an effect with a place for its site where it was without."""
    rv, value = effect.variable.owner.inputs
    rng, size, mu, sigma = rv.owner.inputs
    sited = SitedNormal.rv_op(mu, sigma, location, precision, size=size, rng=rng)
    new_value = value.type(name=f"{effect.name}_{site_transform.name}__")
    new = ModelFreeRV(effect.name, effect.dims, site_transform)(sited, new_value)
    fgraph.replace(effect.variable, new, import_missing=True)
    return new
