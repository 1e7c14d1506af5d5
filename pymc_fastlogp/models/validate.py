"""Validate the model argument of public functions, with their error messages."""

import os
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pymc_fastlogp.config import ENVIRONMENT_VARIABLE, is_switched_on
from pymc_fastlogp.models.freeze import can_be_frozen, copy_without_cache, frozen_copy
from pymc_fastlogp.models.table_rows import without_tables
from pymc_fastlogp.registration import TAG, is_registered, untested_reason

if TYPE_CHECKING:
    import pymc as pm

PASS_ONE = "pass what `with pm.Model() as model:` made, or call it inside of that block."


def validated_model(
    asker: str, model: "pm.Model | None", *, freeze_model: bool, gradient: bool = True
) -> "pm.Model":
    """Return the valid model argument of a public function, frozen if requested, with distinct rows in place of tables.

    Parameters
    ----------
    asker : str
        Name of the public function.
    model : pymc.Model, optional
        The model; by default the model of the open context.
    freeze_model : bool
        Whether ``pm.Data`` and dimension lengths become constants, if PyMC can freeze the model.
    gradient : bool
        Whether a continuous variable is required, for a gradient.

    Raises
    ------
    TypeError
        If ``model`` is not a PyMC model, or is not given while no context is open.
    ValueError
        If the model has no free variable of the required kind.
    RuntimeError
        If the plugin can't be switched on in this process.
    """
    model = model_with_variables(asker, model)
    if gradient and not model.continuous_value_vars:
        names = ", ".join(variable.name for variable in model.free_RVs)
        raise ValueError(
            f"{asker} needs a continuous free variable: marginalize {names}, or give the model another."
        )
    if not is_registered():
        raise RuntimeError(f"pymc_fastlogp stays off: {why_off()}.")
    if not is_switched_on():
        warnings.warn(
            f"pymc_fastlogp is switched off: {why_off()}. What {asker} says is about the plugin switched on,"
            " as pymc_fastlogp.enable() does.",
            UserWarning,
            stacklevel=3,
        )
    model = without_tables(model).model
    if freeze_model and can_be_frozen(model):
        return frozen_copy(model)
    return copy_without_cache(model)


def model_with_variables(asker: str, model: "pm.Model | None") -> "pm.Model":
    """Return the model, by default the model of the open context; raise as :func:`validated_model` without a model or free variable."""
    import pymc as pm

    if model is None:
        model = pm.Model.get_context(error_if_none=False)
    if not isinstance(getattr(model, "free_RVs", None), list):
        what = "" if model is None else f", not {model!r}"
        raise TypeError(f"{asker} needs a PyMC model{what}: {PASS_ONE}")
    if not model.free_RVs:
        raise ValueError(f"{asker} needs a free variable: give the model one without `observed`.")
    return model


def nowhere_finite(causes: Iterable[str] = ()) -> str:
    """Return the sentence about a model without a finite log density, with the causes if they are known."""
    known = "; ".join(causes)
    return "the model has no finite log density at any point tried" + (
        f": {known}" if known else "; run model.debug()"
    )


def refuse_discrete(model: "pm.Model") -> None:
    """Raise ValueError if a model has free variables that nutpie can't sample."""
    if model.discrete_value_vars:
        names = ", ".join(variable.name for variable in model.discrete_value_vars)
        raise ValueError(
            f"nutpie can't sample the discrete variables {names}: marginalize or observe them."
        )


def why_off() -> str:
    """Return the reason why the plugin is off."""
    if reason := untested_reason():
        return f"{reason}; install a tested version"
    if not is_registered():
        return f"PyTensor's flag optimizer_excluding names {TAG}"
    return f"{ENVIRONMENT_VARIABLE}={os.environ.get(ENVIRONMENT_VARIABLE)}"
