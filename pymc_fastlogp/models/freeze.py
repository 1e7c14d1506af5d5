"""Copy a model with data and dimension lengths as constants."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pymc_fastlogp.models.compile_lock import compile_lock

if TYPE_CHECKING:
    import pymc as pm


def can_be_frozen(model: "pm.Model") -> bool:
    """Return whether PyMC can copy and freeze a model: not inside of another model, nor with symbolic initial values."""
    return model.parent is None and not with_symbolic_initial_values(model)


def with_symbolic_initial_values(model: "pm.Model") -> list[str]:
    """Return the names of variables whose initial values are graphs."""
    from pytensor.graph.basic import Constant, Variable

    values = model.rvs_to_initial_values.items()
    return [rv.name for rv, x in values if isinstance(x, Variable) and not isinstance(x, Constant)]


def frozen_copy(model: "pm.Model") -> "pm.Model":
    """Return PyMC's frozen copy of a model, with the ``check_bounds`` of the model.

    PyMC temporarily removes the initial values from the model. Two threads that do so at once would lose them, so the lock is held.

    Raises
    ------
    NotImplementedError
        If the model has symbolic initial values.
    ValueError
        If the model is inside of another.
    """
    return copy_with_frozen(model)


def copy_without_cache(model: "pm.Model") -> "pm.Model":
    """Return a model that caches no compiled functions.

    PyMC's ``FrozenModel`` caches functions, whether they were compiled with the plugin on or off.

    Returns
    -------
    pymc.Model
        A copy with the same data of a ``FrozenModel``, else the model itself.
    """
    from pymc.model import core

    return copy_with_data(model) if isinstance(model, getattr(core, "FrozenModel", ())) else model


def copy_with_data(model: "pm.Model") -> "pm.Model":
    """Return PyMC's copy of a model, with data and dimension lengths shared as in the model."""
    return copy_with_frozen(model, dims=[], data=[])


def copy_with_frozen(
    model: "pm.Model", *, dims: Sequence[str] | None = None, data: Sequence[str] | None = None
) -> "pm.Model":
    """Return PyMC's copy of a model with these dimension lengths and data as constants, all by default."""
    from pymc.model.transform.optimization import freeze_dims_and_data

    with compile_lock():
        with without_partly_named_dims(model) as partly_named:
            copy = freeze_dims_and_data(model, dims=dims, data=data)
        copy.named_vars_to_dims.update(partly_named)
        return with_checks_of(model, copy)


@contextmanager
def without_partly_named_dims(model: "pm.Model") -> Iterator[Mapping[str, Any]]:
    """Remove dims such as ``("group", None)`` temporarily, and yield them by variable: PyMC refuses to build a graph of a model with such dims."""
    given = model.named_vars_to_dims
    try:
        model.named_vars_to_dims = {name: x for name, x in given.items() if None not in x}
        yield {name: x for name, x in given.items() if None in x}
    finally:
        model.named_vars_to_dims = given


def with_checks_of(model: "pm.Model", copy: "pm.Model") -> "pm.Model":
    """Set ``check_bounds`` of a copy, which PyMC creates with ``check_bounds=True``, and return the copy."""
    copy.check_bounds = model.check_bounds
    return copy
