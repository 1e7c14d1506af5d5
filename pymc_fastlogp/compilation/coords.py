"""Dimensions and coordinates of the stored variables, as nutpie passes them to its sampler."""

from collections.abc import Iterable, Mapping
from itertools import count, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pymc_fastlogp._upstream.nutpie import Functions
from pymc_fastlogp.reparametrization.linear_map import LinearMap

if TYPE_CHECKING:
    import pymc as pm

# Dimension of an unconstrained point.
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
        The rewritten functions of the model.

    Raises
    ------
    ValueError
        If a dimension has the name that nutpie uses for unconstrained points.
    """
    unnamed = [name for name, values in model.coords.items() if values is None]
    coords = _user_coords(model, {name: int(model.dim_lengths[name].eval()) for name in unnamed})
    shapes = {name: tuple(shape) for name, _, shape in zip(*functions.shape_info, strict=True)}
    values = {value.name: model.values_to_rvs[value].name for value in model.value_vars}
    coords[POINT] = pd.Index(
        [x for name, shape in shapes.items() if name in values for x in _entries(name, shape)]
    )
    dims = {name: named_dims(name, x) for name, x in model.named_vars_to_dims.items()}
    # nutpie needs the length of each dimension.
    for name in dims.keys() & shapes.keys():
        for dim, length in zip(dims[name], shapes[name], strict=True):
            coords.setdefault(dim, pd.RangeIndex(length))
    for value in functions.reparameterized:
        rv = values.get(value)
        if rv in dims and shapes.get(rv) == shapes.get(value):
            dims[value] = dims[rv]
    return dims, coords


def named_dims(name: str, dims: Iterable[str | None]) -> tuple[str, ...]:
    """Return the dimensions of a variable; unnamed ones are numbered, as in ArviZ."""
    numbers = count()
    return tuple(f"{name}_dim_{next(numbers)}" if dim is None else dim for dim in dims)


def coords_at(
    model: "pm.Model", lengths: Mapping[str, int], before: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the coordinates of a model with other data.

    Parameters
    ----------
    model : pymc.Model
        The model with these data.
    lengths : mapping of str to int
        Lengths of the dimensions.
    before : mapping of str to Index
        Coordinates of the model with data for which all stored variables have the same shapes.
    """
    return _user_coords(model, lengths) | {POINT: before[POINT]}


def transformed_coords(coords: Mapping[str, Any], linear_map: LinearMap) -> dict[str, Any]:
    """Return coordinates with names for an unconstrained point of the sampler, whose transformed entries are marked."""
    indices, _, dependents, *_ = linear_map
    marked = {*indices.tolist(), *dependents.tolist()}
    names = [f"{x} (moved)" if k in marked else x for k, x in enumerate(coords[POINT])]
    return {**coords, POINT: pd.Index(names)}


def for_nutpie(coords: Mapping[str, pd.Index]) -> dict[str, pd.Index]:
    """Replace coordinates that nutpie rejects, such as tuples, periods or mixed types, by positions."""
    return {name: x if is_accepted(x) else pd.RangeIndex(len(x)) for name, x in coords.items()}


def is_accepted(index: pd.Index) -> bool:
    """Return whether nutpie accepts a coordinate."""
    if index.dtype in ACCEPTED or index.dtype.kind in "mM":
        return True
    return index.inferred_type == "string" and not index.hasnans


def user_arrays(model: "pm.Model") -> dict[str, np.ndarray]:
    """Return the user's coordinates of a model as arrays of shape ``(length,)``; a tuple is one entry."""
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
    """Raise ValueError if the name of a stored dimension has a slash, which a DataTree can't hold; PyMC rejects slashes in names of variables."""
    drawn = [x.name for x in (*model.free_RVs, *model.deterministics)]
    data = [x.name for x in (*model.observed_RVs, *model.data_vars)]
    for name in (*(drawn if var_names is None else var_names), *data):
        for dim in model.named_vars_to_dims.get(name, ()):
            if "/" in str(dim):
                raise ValueError(
                    f"the dimension {dim!r} of {name} has a slash in its name, which a DataTree can't hold: rename it."
                )


def _user_coords(model: "pm.Model", lengths: Mapping[str, int]) -> dict[str, Any]:
    """Return the user's coordinates, and positions for dimensions without coordinates."""
    if POINT in model.coords:
        raise ValueError(f"a dimension is called {POINT}: nutpie uses this name, take another.")
    return {
        name: pd.Index(pd.RangeIndex(lengths[name]) if values is None else values)
        for name, values in model.coords.items()
    }


def _entries(name: str, shape: tuple[int, ...]) -> list[str]:
    """Return the names of the entries of a variable."""
    if not shape:
        return [name]
    return [f"{name}_{'.'.join(map(str, index))}" for index in product(*map(range, shape))]
