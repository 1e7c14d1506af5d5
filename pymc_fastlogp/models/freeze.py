"""A model whose data and lengths of dimensions are constants."""

from typing import TYPE_CHECKING

from pymc_fastlogp.models.compile_lock import compile_lock

if TYPE_CHECKING:
    import pymc as pm


def can_be_frozen(model: "pm.Model") -> bool:
    """Return whether PyMC can freeze a model, or copy it at all: not one inside of another, nor one with a symbolic initial value."""
    return model.parent is None and not with_symbolic_initial_values(model)


def with_symbolic_initial_values(model: "pm.Model") -> list[str]:
    """Return the names of variables whose initial values are graphs."""
    from pytensor.graph.basic import Constant, Variable

    values = model.rvs_to_initial_values.items()
    return [rv.name for rv, x in values if isinstance(x, Variable) and not isinstance(x, Constant)]


def frozen_copy(model: "pm.Model") -> "pm.Model":
    """Return PyMC's frozen copy of a model, which checks parameters where the model does.

    PyMC takes the initial values out of the model meanwhile: of two threads that do so, one would find none, and put that back.

    Raises
    ------
    NotImplementedError
        If the model has symbolic initial values.
    ValueError
        If it is part of another.
    """
    from pymc.model.transform.optimization import freeze_dims_and_data

    with compile_lock():
        return with_checks_of(model, freeze_dims_and_data(model))


def copy_without_cache(model: "pm.Model") -> "pm.Model":
    """Return a model that compiles anew whenever it is asked to; PyMC's ``FrozenModel`` keeps functions, whether the plugin was on or off.

    Returns
    -------
    pymc.Model
        The model itself unless it is such a one, else a copy with the same data.
    """
    from pymc.model import core
    from pymc.model.transform.optimization import freeze_dims_and_data

    if not isinstance(model, getattr(core, "FrozenModel", ())):
        return model
    with compile_lock():
        return with_checks_of(model, freeze_dims_and_data(model, dims=[], data=[]))


def with_checks_of(model: "pm.Model", copy: "pm.Model") -> "pm.Model":
    """Return a copy of a model that checks parameters where the model does: PyMC makes those of a graph with ``check_bounds=True``."""
    copy.check_bounds = model.check_bounds
    return copy
