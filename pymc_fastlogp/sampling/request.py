"""Request of a compilation: the arguments of ``compile_pymc_model``, validated, with variables by name."""

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pymc_fastlogp.models.freeze import can_be_frozen
from pymc_fastlogp.models.table_rows import without_tables
from pymc_fastlogp.models.validate import refuse_discrete

if TYPE_CHECKING:
    import pymc as pm

logger = logging.getLogger("pymc_fastlogp")


class Request(NamedTuple):
    """Arguments of a compilation.

    Attributes
    ----------
    model : pymc.Model
        The user's model, with distinct rows in place of tables.
    options : dict
        Arguments of ``nutpie.compile_pymc_model`` about initial points and stored variables, with variables by name.
    freeze : bool
        Whether data and dimension lengths become constants.
    reparametrize : bool
        Whether effects and correlated parameters are reparametrized, which freezes data, too.
    """

    model: "pm.Model"
    options: dict[str, Any]
    freeze: bool
    reparametrize: bool

    @property
    def is_frozen(self) -> bool:
        """Return whether the compiled model has constant data."""
        return self.freeze or self.reparametrize

    @property
    def frozen_data(self) -> frozenset[str]:
        """Names of the data that become constants."""
        return frozenset(x.name for x in self.model.data_vars if self.is_frozen)

    @property
    def key_options(self) -> dict[str, Any]:
        """Options that the key of the cache depends on."""
        return self.options | ({"reparametrize": True} if self.reparametrize else {})


def request_of(
    model: "pm.Model",
    *,
    initial_points: Mapping[Any, Any] | None = None,
    jitter_rvs: set | None = None,
    default_initialization_strategy: str = "support_point",
    var_names: Iterable[str] | None = None,
    freeze_model: bool | None = None,
    reparametrize: bool = False,
    reduced: "pm.Model | None" = None,
) -> Request:
    """Return the request for arguments of :func:`compile_pymc_model`. ``reduced`` is the model without tables, if known."""
    refuse_discrete(model)
    is_possible = can_be_frozen(model)
    if freeze_model is None and not is_possible:
        logger.info(
            "the model is not frozen: PyMC cannot freeze one inside of another, or with symbolic initial values"
        )
    names = {x: x.name for x in model.free_RVs}
    options = {
        "initial_points": _initial_points_by_name(model, initial_points or {}),
        # nutpie ignores variables that are not in the model, too.
        "jitter_rvs": None
        if jitter_rvs is None
        else sorted(names[x] for x in jitter_rvs if x in names),
        "default_initialization_strategy": default_initialization_strategy,
        "var_names": None if var_names is None else list(var_names),
    }
    return Request(
        reduced or without_tables(model).model,
        options,
        is_possible if freeze_model is None else freeze_model,
        reparametrize and is_possible,
    )


def _initial_points_by_name(model: "pm.Model", given: Mapping[Any, Any]) -> dict[str, Any]:
    """Return initial values by the names of free variables.

    Keys of ``given`` may leave out the name of the model, or be unconstrained variables.

    Raises
    ------
    KeyError
        If the model has no such variable.
    ValueError
        If an initial value depends on other variables, which a frozen copy replaces.
    """
    from pymc.initial_point import convert_str_to_rv_dict
    from pytensor.graph.basic import Variable
    from pytensor.graph.traversal import ancestors

    free = {*model.free_RVs}
    values = convert_str_to_rv_dict(model, given)
    by_name = {rv.name: value for rv, value in values.items() if rv in free}
    for name, value in by_name.items():
        if isinstance(value, Variable) and not free.isdisjoint(ancestors([value])):
            raise ValueError(
                f"the initial value of {name} depends on other random variables: give numbers, or 'prior'."
            )
    return by_name
