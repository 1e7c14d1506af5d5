"""The model with sites: the same variables, of which effects have another value variable."""

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
NO_LENGTH = "its length is not known"
NO_ENTRIES = "it has no entries"
NO_SITE = "it has no site"
IS_COUPLED = (
    "the likelihood does not know its entries apart, as those of coefficients or of steps of a walk"
)
SINGLE_PRECISION = "it is of single precision"


@dataclass(frozen=True)
class ModelEffects:
    """Properties of the free variables of a model.

    Attributes
    ----------
    blocks : mapping of tuple of str to Site
        Names of effects that go together, in the order of elimination, and a site for them that says flat.
    kinds : mapping of str to str
        How the model writes each.
    scales : tuple of str
        Names of their scales, for which :class:`~pymc_fastlogp.reparametrization.scales.ScaleTransform` is made.
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
        With data and lengths of dimensions that are constants.
    left_out : collection of str
        Names of variables that stay as they are, besides those that have initial values in the model.
    coupled : collection of str
        Names of those whose entries turned out not to be effects of groups.

    Raises
    ------
    NotImplementedError
        If PyMC can't make a graph of the model, as with symbolic initial values.
    ValueError
        If the model is part of another.
    """
    reasons = reasons_to_keep(model)
    reasons |= dict.fromkeys(coupled, IS_COUPLED)
    sited = EffectGraph(model, reasons | dict.fromkeys(left_out, HAS_START))
    scales = sited.put_scales([x.name for x in sited.all])
    blocks = dict(sited.found())
    return ModelEffects(
        blocks,
        {effect.name: effect.kind for effect in sited.all},
        tuple(scales),
        tuple(x for x in sited.unchanged if x.name not in scales),
    )


class ModelWithSites(NamedTuple):
    """A model with sites.

    Attributes
    ----------
    model : pymc.Model
        The model.
    means, factors : mapping of str to Variable
        Of the effects, in the graph of the model: what multiplies standardized effects, a scale or a matrix.
    shared : mapping of str to SharedVariable
        The numbers of sites, where they are not constants.
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
        Left as it is.
    sites : mapping of tuple of str to Site
        For each block that was found.
    is_shared : bool
        Whether sites are shared variables, or else constants.
    """
    names = [name for block in sites for name in block]
    # Or else of two that multiply each other the one without a site could be taken.
    sited = EffectGraph(model, {x.name: NO_SITE for x in model.free_RVs if x.name not in names})
    variables: dict[str, Any] = {
        name: pytensor.shared(x, name=name, shape=x.shape) if is_shared else pt.constant(x)
        for block, site in sites.items()
        if not site.is_infinite
        for name, x in site_arrays(block, site).items()
    }
    # Scales of effects that are known well are known, too.
    placed = [block for block, site in sites.items() if not site.is_infinite]
    sited.put_scales([name for block in placed for name in block])
    sited.put_all(sites, variables)
    # As outputs of the graph they are kept up to date while the model is made of it.
    for name in names:
        sited.fgraph.add_output(view_op(sited.effect(name).mean), import_missing=True)
        sited.fgraph.add_output(view_op(sited.effect(name).factor), import_missing=True)
    new = with_checks_of(model, model_from_fgraph(sited.fgraph, mutate_fgraph=True))
    # Effects are now made from those that go with them, which the new model has before them.
    order = [rv.name for rv in model.free_RVs]
    new.free_RVs.sort(key=lambda rv: order.index(rv.name))
    for rv, value in model.rvs_to_initial_values.items():
        new.set_initval(new[rv.name], value)
    parts = sited.fgraph.outputs[len(sited.fgraph.outputs) - 2 * len(names) :]
    means, factors = (dict(zip(names, parts[i::2], strict=True)) for i in range(2))
    return ModelWithSites(new, means, factors, variables if is_shared else {})


def reasons_to_keep(model: "pm.Model") -> dict[str, str]:
    """Return the names of the free variables of a model that stay as they are, and why."""
    values = model.rvs_to_initial_values
    reasons = {rv.name: NO_LENGTH for rv in model.free_RVs if not _has_length(rv)}
    reasons |= {rv.name: NO_ENTRIES for rv in model.free_RVs if _is_empty(rv)}
    reasons |= {rv.name: SINGLE_PRECISION for rv in model.free_RVs if rv.type.dtype == "float32"}
    return reasons | {rv.name: HAS_START for rv, value in values.items() if value is not None}


def _has_length(rv: Variable) -> bool:
    return None not in rv.type.shape or length_of(rv) is not None


def _is_empty(rv: Variable) -> bool:
    return 0 in (*rv.type.shape, length_of(rv))
