"""A model whose data and lengths of dimensions are constants."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pymc as pm


def frozen_copy(model: "pm.Model") -> "pm.Model":
    """Return PyMC's frozen copy of a model, which checks parameters where the model does.

    Raises
    ------
    NotImplementedError
        If the model has symbolic initial values.
    ValueError
        If it is part of another.
    """
    from pymc.model.transform.optimization import freeze_dims_and_data

    return with_checks_of(model, freeze_dims_and_data(model))


def with_checks_of(model: "pm.Model", copy: "pm.Model") -> "pm.Model":
    """Return a copy of a model that checks parameters where the model does: PyMC makes those of a graph with ``check_bounds=True``."""
    copy.check_bounds = model.check_bounds
    return copy
