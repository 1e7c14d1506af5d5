"""Select the parametrization of the effects of a model: unchanged, centered, or with sites estimated by a pilot."""

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from pymc_fastlogp.models.array_rows import with_distinct_rows
from pymc_fastlogp.models.freeze import frozen_copy
from pymc_fastlogp.reparametrization.model_with_sites import ModelEffects, find_effects
from pymc_fastlogp.reparametrization.pilot import Pilot, Sites
from pymc_fastlogp.reparametrization.sites import Array, Site
from pymc_fastlogp.reparametrization.well_identified import CENTERED, centered_if_well_identified

if TYPE_CHECKING:
    import pymc as pm

logger = logging.getLogger("pymc_fastlogp")


class Parametrization(NamedTuple):
    """Selected parametrization.

    Attributes
    ----------
    sites : mapping of tuple of str to Site
        Sites of the effects.
    effects : set of str
        Names of the variables that have sites.
    model : pymc.Model
        Model with these sites.
    compiled : Any
        The model, compiled.
    point : ndarray
        Point near its mode.
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
    """Select the parametrization of the effects of a model.

    The log lists the variables that keep their parametrization, with the reason. The result is None if no variable changes.

    Parameters
    ----------
    model : pymc.Model
        The model.
    compile : callable
        Function that compiles a model to an object with ``logp_dlogp`` and ``with_data``.
    left_out : collection of str
        Variables that keep their parametrization because the caller gives initial values.
    coupled : collection of str
        Variables that keep their parametrization because a pilot found that the likelihood couples their entries.
    """
    model = with_distinct_rows(model).model
    try:
        frozen = frozen_copy(model)
    except (NotImplementedError, ValueError) as error:
        logger.info("no variable is reparametrized: %s", error)
        return None
    found = find_effects(frozen, left_out, coupled)
    for variable in found.unchanged:
        logger.info("%s is not reparametrized: %s", variable.name, variable.reason)
    if not found.blocks:
        return None
    centered = centered_if_well_identified(frozen, found)
    if centered is not None:
        return _centered_parametrization(centered, found, compile)
    for block in found.blocks:
        logger.info("%s get sites", ", ".join(f"{x} ({found.kinds[x]})" for x in block))
    if found.scales:
        logger.info("%s get the transform of scales near zero", ", ".join(found.scales))
    pilot = Pilot(frozen, found.blocks, compile)
    if not hasattr(pilot.compiled, "logp_dlogp"):
        logger.info("no variable is reparametrized: nutpie compiled the model, see above")
        return None
    pilot.run()
    if pilot.coupled:
        return select_parametrization(model, compile, left_out, {*coupled, *pilot.coupled})
    return Parametrization(pilot.sites, pilot.effects, pilot.model, pilot.compiled, pilot.point)


def _centered_parametrization(
    centered: "pm.Model", found: ModelEffects, compile: Callable[["pm.Model"], Any]
) -> Parametrization | None:
    """Return the centered parametrization, None if the model is written centered."""
    [(names, flat)] = found.blocks.items()
    why = "each effect is well identified by its rows"
    if all(found.kinds[name] in CENTERED for name in names):
        logger.info("no variable is reparametrized: %s", why)
        return None
    logger.info("%s are sampled centered: %s", ", ".join(names), why)
    site = Site.infinite(len(flat.gradient), flat.gradient.shape[1:])
    compiled = compile(centered)
    start = compiled.initial_point_func(0)
    return Parametrization({names: site}, {*names}, centered, compiled, start)
