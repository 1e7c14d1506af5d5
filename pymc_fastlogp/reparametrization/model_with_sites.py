"""Model with sites: the same variables, but effects have another value variable."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pytensor
import pytensor.tensor as pt
from pymc.model.fgraph import model_from_fgraph
from pytensor.compile.ops import view_op
from pytensor.graph.basic import Variable

from pymc_fastlogp.models.freeze import with_checks_of
from pymc_fastlogp.reparametrization.effect_graph import EffectGraph
from pymc_fastlogp.reparametrization.effects import Unchanged
from pymc_fastlogp.reparametrization.sites import Block, Site, site_arrays
from pymc_fastlogp.reparametrization.zero_sum import length_of

if TYPE_CHECKING:
    import pymc as pm

HAS_START = "it has an initial value"
NO_LENGTH = "its length is unknown"
NO_ENTRIES = "it has no entries"
NO_SITE = "it has no site"
IS_COUPLED = (
    "the likelihood couples its entries, as it does for coefficients or steps of a random walk"
)
SINGLE_PRECISION = "its dtype is float32"


@dataclass(frozen=True)
class ModelEffects:
    """Effects of a model, and its other free variables.

    Attributes
    ----------
    blocks : mapping of tuple of str to Site
        Names of the effects of a joint site, in the order of elimination, and a flat site.
    kinds : mapping of str to str
        Parametrization of each effect in the model.
    scales : tuple of str
        Names of the scales that get :class:`~pymc_fastlogp.reparametrization.scale_transform.ScaleTransform`.
    unchanged : tuple of Unchanged
        All other free variables.
    """

    blocks: Mapping[Block, Site]
    kinds: Mapping[str, str]
    scales: tuple[str, ...]
    unchanged: tuple[Unchanged, ...]


def find_effects(
    model: "pm.Model", left_out: Collection[str] = (), coupled: Collection[str] = ()
) -> ModelEffects:
    """Find the effects of a model.

    Parameters
    ----------
    model : pymc.Model
        Model with constant data and dimension lengths.
    left_out : collection of str
        Variables with initial values of the caller. They keep their parametrization, as do variables with initial values in the model.
    coupled : collection of str
        Variables whose entries the likelihood couples, so that they are no effects of groups.

    Raises
    ------
    NotImplementedError
        If PyMC cannot build a graph of the model, for example because of symbolic initial values.
    ValueError
        If the model is part of another.
    """
    reasons = reasons_to_keep(model)
    reasons |= dict.fromkeys(coupled, IS_COUPLED)
    graph = EffectGraph(model, reasons | dict.fromkeys(left_out, HAS_START))
    scales = graph.transform_scales([x.name for x in graph.all])
    blocks = dict(graph.insert_flat_sites())
    return ModelEffects(
        blocks,
        {effect.name: effect.kind for effect in graph.all},
        tuple(scales),
        tuple(x for x in graph.unchanged if x.name not in scales),
    )


class ModelWithSites(NamedTuple):
    """Model with sites.

    Attributes
    ----------
    model : pymc.Model
        Model with other value variables.
    means, factors : mapping of str to Variable
        Mean of each effect, and the scale or matrix that multiplies the standardized effect, in the graph of the model.
    shared : mapping of str to SharedVariable
        Arrays of the sites, if they are shared variables.
    """

    model: "pm.Model"
    means: Mapping[str, Variable]
    factors: Mapping[str, Variable]
    shared: Mapping[str, Any]


def with_sites(
    model: "pm.Model", sites: Mapping[Block, Site], *, is_shared: bool = False
) -> ModelWithSites:
    """Return the model with sites.

    Parameters
    ----------
    model : pymc.Model
        The model, which is not changed.
    sites : mapping of tuple of str to Site
        Site of each block.
    is_shared : bool
        Whether the arrays of sites are shared variables instead of constants.
    """
    names = [name for block in sites for name in block]
    # Of two effects that multiply each other, the one with a site has to be matched.
    graph = EffectGraph(model, {x.name: NO_SITE for x in model.free_RVs if x.name not in names})
    variables: dict[str, Any] = {
        name: pytensor.shared(x, name=name, shape=x.shape) if is_shared else pt.constant(x)
        for block, site in sites.items()
        if not site.is_infinite
        for name, x in site_arrays(block, site).items()
    }
    # A well-identified effect has a well-identified scale, which needs no other transform.
    finite = [block for block, site in sites.items() if not site.is_infinite]
    graph.transform_scales([name for block in finite for name in block])
    graph.insert_sites(sites, variables)
    # Outputs of the graph stay valid while PyMC builds the model from it.
    for name in names:
        graph.fgraph.add_output(view_op(graph.effect(name).mean), import_missing=True)
        graph.fgraph.add_output(view_op(graph.effect(name).factor), import_missing=True)
    new = with_checks_of(model, model_from_fgraph(graph.fgraph, mutate_fgraph=True))
    new.named_vars_to_dims.update(graph.partly_named)
    # An effect depends on other effects of its block, which the new model lists first. Restore the order.
    order = [rv.name for rv in model.free_RVs]
    new.free_RVs.sort(key=lambda rv: order.index(rv.name))
    for rv, value in model.rvs_to_initial_values.items():
        new.set_initval(new[rv.name], value)
    parts = graph.fgraph.outputs[len(graph.fgraph.outputs) - 2 * len(names) :]
    means, factors = (dict(zip(names, parts[i::2], strict=True)) for i in range(2))
    return ModelWithSites(new, means, factors, variables if is_shared else {})


def reasons_to_keep(model: "pm.Model") -> dict[str, str]:
    """Return the free variables that keep their parametrization whatever their prior, and why."""
    values = model.rvs_to_initial_values
    reasons = {rv.name: NO_LENGTH for rv in model.free_RVs if not _has_length(rv)}
    reasons |= {rv.name: NO_ENTRIES for rv in model.free_RVs if _is_empty(rv)}
    reasons |= {rv.name: SINGLE_PRECISION for rv in model.free_RVs if rv.type.dtype == "float32"}
    return reasons | {rv.name: HAS_START for rv, value in values.items() if value is not None}


def _has_length(rv: Variable) -> bool:
    return None not in rv.type.shape or length_of(rv) is not None


def _is_empty(rv: Variable) -> bool:
    return 0 in (*rv.type.shape, length_of(rv))
