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
# Bambi moves the intercept in `fit`, so its models are not sampled by way of their PyMC model.
BAMBI_FITS = "write `with pymc_fastlogp.patched_pymc(): model.fit()` for a model of Bambi."
BAMBI_BUILDS = "pass model.backend.model after model.build() for a model of Bambi."


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
        raise not_a_model(asker, model)
    if not model.free_RVs:
        raise ValueError(f"{asker} needs a free variable: give the model one without `observed`.")
    return model


def not_a_model(asker: str, given: object) -> TypeError:
    """Return the error for an argument that is not a PyMC model, which says what to pass."""
    if given is None:
        return TypeError(f"{asker} needs a PyMC model: {PASS_ONE}")
    advice = PASS_ONE
    if is_bambi_model(given):
        advice = BAMBI_BUILDS if asker in ("explain", "verify", "benchmark") else BAMBI_FITS
    # The repr of a library's model can have hundreds of lines.
    return TypeError(
        f"{asker} needs a PyMC model, not one of type {type(given).__name__}: {advice}"
    )


def is_bambi_model(given: object) -> bool:
    """Return whether an object has the attributes of a Bambi model, without an import of Bambi."""
    return all(hasattr(given, name) for name in ("build", "backend", "formula", "fit"))


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
