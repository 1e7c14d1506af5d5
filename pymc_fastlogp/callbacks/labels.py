"""Dimensions and coordinates of what is stored, as nutpie gives them to its sampler."""

from itertools import product
from typing import TYPE_CHECKING, Any

import pandas as pd

from pymc_fastlogp._upstream.nutpie import Functions

if TYPE_CHECKING:
    import pymc as pm

# The dimension of an unconstrained point.
POINT = "unconstrained_parameter"


def dims_and_coords(
    model: "pm.Model", functions: Functions
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the dimensions of stored variables by their names, and the coordinates by dimension.

    Parameters
    ----------
    model : pymc.Model
        The model.
    functions : Functions
        What it was compiled to.

    Raises
    ------
    ValueError
        If a dimension has the name that nutpie uses for unconstrained points.
    """
    coords = {
        name: pd.Index(
            pd.RangeIndex(int(model.dim_lengths[name].eval())) if values is None else values
        )
        for name, values in model.coords.items()
    }
    if POINT in coords:
        raise ValueError(f"a dimension is called {POINT}: nutpie uses this name, take another.")
    shapes = {name: tuple(shape) for name, _, shape in zip(*functions.shape_info, strict=True)}
    values = {value.name: model.values_to_rvs[value].name for value in model.value_vars}
    coords[POINT] = pd.Index(
        [x for name, shape in shapes.items() if name in values for x in _entries(name, shape)]
    )
    dims = dict(model.named_vars_to_dims)
    for value in functions.reparameterized:
        rv = values.get(value)
        if rv in dims and shapes.get(rv) == shapes.get(value):
            dims[value] = dims[rv]
    return dims, coords


def _entries(name: str, shape: tuple[int, ...]) -> list[str]:
    """Return a name for each entry of a variable."""
    if not shape:
        return [name]
    return [f"{name}_{'.'.join(map(str, index))}" for index in product(*map(range, shape))]
