"""Placement of the effects of a model: centered, at sites estimated by a pilot, or unchanged."""

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from pymc_fastlogp.models.freeze import frozen_copy
from pymc_fastlogp.reparametrization.model_with_sites import ModelEffects, find_effects
from pymc_fastlogp.reparametrization.pilot import Array, Pilot, Sites
from pymc_fastlogp.reparametrization.sites import Site
from pymc_fastlogp.reparametrization.well_identified import centered_if_well_identified

if TYPE_CHECKING:
    import pymc as pm

logger = logging.getLogger("pymc_fastlogp")


class Parametrization(NamedTuple):
    """A model whose effects are where their data want them.

    Attributes
    ----------
    sites : mapping of tuple of str to Site
        The sites of effects.
    effects : set of str
        Names of the variables that have sites.
    model : pymc.Model
        The model with them.
    compiled : Any
        The same compiled.
    point : ndarray
        About its mode.
    """

    sites: Sites
    effects: set[str]
    model: "pm.Model"
    compiled: Any
    point: Array


def select_parametrization(
    model: "pm.Model",
    compile: Callable[["pm.Model"], Any],
    left_out: Collection[str] = (),
    coupled: Collection[str] = (),
) -> Parametrization | None:
    """Find the effects of a model and their sites, and say in the log what is left as it is; None where no effect is found, or all are placed well as written.

    Parameters
    ----------
    model : pymc.Model
        The model as written.
    compile : callable
        From a model to what it is compiled to, with ``logp_dlogp`` and ``with_data``.
    left_out : collection of str
        Names of variables that stay as they are, since they have initial values.
    coupled : collection of str
        The same, since a pilot has found that their entries are no effects of groups.
    """
    try:
        frozen = frozen_copy(model)
    except (NotImplementedError, ValueError) as error:
        logger.info("all variables stay as they are: %s", error)
        return None
    found = find_effects(frozen, left_out, coupled)
    for one in found.unchanged:
        logger.info("%s stays as it is: %s", one.name, one.reason)
    if not found.blocks:
        return None
    centered = centered_if_well_identified(frozen, found)
    if centered is not None:
        return _centered_parametrization(centered, found, compile)
    for block in found.blocks:
        logger.info("%s get sites", ", ".join(f"{x} ({found.kinds[x]})" for x in block))
    if found.scales:
        logger.info("%s may come near zero: scales of effects", ", ".join(found.scales))
    pilot = Pilot(frozen, found.blocks, compile)
    if not hasattr(pilot.compiled, "logp_dlogp"):
        logger.info("all variables stay as they are: nutpie compiled the model, see above")
        return None
    pilot.run()
    if pilot.coupled:
        return select_parametrization(model, compile, left_out, {*coupled, *pilot.coupled})
    return Parametrization(pilot.sites, pilot.effects, pilot.model, pilot.compiled, pilot.point)


def _centered_parametrization(
    centered: "pm.Model", found: ModelEffects, compile: Callable[["pm.Model"], Any]
) -> Parametrization | None:
    """Return a model whose effects are centered, None if that is the model as written."""
    [(names, flat)] = found.blocks.items()
    why = "each effect is known well by its rows"
    if all(found.kinds[name] == "centered" for name in names):
        logger.info("all variables stay as they are: %s", why)
        return None
    logger.info("%s are sampled centered: %s", ", ".join(names), why)
    site = Site.infinite(len(names), flat.gradient.shape[1:])
    compiled = compile(centered)
    start = compiled.initial_point_func(0)
    return Parametrization({names: site}, {*names}, centered, compiled, start)
