"""Dimensions and coordinates of what is stored, as nutpie gives them to its sampler."""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pymc_fastlogp._upstream.nutpie import Functions
from pymc_fastlogp.reparametrization.linear_map import LinearMap

if TYPE_CHECKING:
    import pymc as pm

# The dimension of an unconstrained point.
POINT = "unconstrained_parameter"
# Dtypes of coordinates that nutpie accepts, besides strings, dates and durations of NumPy.
ACCEPTED = ("int64", "float64", "bool")


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
    unnamed = [name for name, values in model.coords.items() if values is None]
    coords = _given(model, {name: int(model.dim_lengths[name].eval()) for name in unnamed})
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


def coords_at(
    model: "pm.Model", lengths: Mapping[str, int], before: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the coordinates of a model with other data.

    Parameters
    ----------
    model : pymc.Model
        The model with these data.
    lengths : mapping of str to int
        Of its dimensions.
    before : mapping of str to Index
        Its coordinates with data for which all that is stored has the same shapes.
    """
    return _given(model, lengths) | {POINT: before[POINT]}


def coords_of_moved(coords: Mapping[str, Any], linear_map: LinearMap) -> dict[str, Any]:
    """Return coordinates of which an unconstrained point is one of the sampler: what it moves by a map is not what the model calls so."""
    moved = {*linear_map.indices.tolist(), *linear_map.dependents.tolist()}
    names = [f"{x} (moved)" if k in moved else x for k, x in enumerate(coords[POINT])]
    return {**coords, POINT: pd.Index(names)}


def for_nutpie(coords: Mapping[str, pd.Index]) -> dict[str, pd.Index]:
    """Return coordinates with positions in place of those that nutpie refuses, such as tuples, periods or mixed types."""
    return {name: x if is_accepted(x) else pd.RangeIndex(len(x)) for name, x in coords.items()}


def is_accepted(index: pd.Index) -> bool:
    """Return whether nutpie takes a coordinate."""
    if index.dtype in ACCEPTED or index.dtype.kind in "mM":
        return True
    return index.inferred_type == "string" and not index.hasnans


def shown(model: "pm.Model") -> dict[str, np.ndarray]:
    """Return the coordinates of a model as ``pm.sample`` shows them, shape ``(length,)`` each; a tuple is one entry."""
    given = {name: values for name, values in model.coords.items() if values is not None}
    return {name: _as_array(values) for name, values in given.items()}


def _as_array(values: Any) -> np.ndarray:
    try:
        array = np.array(values)
    except ValueError:  # tuples of several lengths
        array = None
    if array is not None and array.ndim == 1:
        return array
    return np.fromiter(values, object, len(values))


def refuse_slashes(model: "pm.Model", var_names: Iterable[str] | None) -> None:
    """Raise ValueError if a dimension of what is stored has a slash in its name, which a DataTree can't hold; PyMC refuses variables with one."""
    drawn = [x.name for x in (*model.free_RVs, *model.deterministics)]
    data = [x.name for x in (*model.observed_RVs, *model.data_vars)]
    for name in (*(drawn if var_names is None else var_names), *data):
        for dim in model.named_vars_to_dims.get(name, ()):
            if "/" in str(dim):
                raise ValueError(
                    f"the dimension {dim!r} of {name} has a slash in its name, which a DataTree can't hold: rename it."
                )


def _given(model: "pm.Model", lengths: Mapping[str, int]) -> dict[str, Any]:
    """Return the coordinates that the user gave, numbers for dimensions that have a length alone."""
    if POINT in model.coords:
        raise ValueError(f"a dimension is called {POINT}: nutpie uses this name, take another.")
    return {
        name: pd.Index(pd.RangeIndex(lengths[name]) if values is None else values)
        for name, values in model.coords.items()
    }


def _entries(name: str, shape: tuple[int, ...]) -> list[str]:
    """Return a name for each entry of a variable."""
    if not shape:
        return [name]
    return [f"{name}_{'.'.join(map(str, index))}" for index in product(*map(range, shape))]
