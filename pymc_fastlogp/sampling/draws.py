"""Convert the draws of nutpie's library to the groups that ``pm.sample`` returns.

nutpie converts them with all of ArviZ, and PyMC imports nutpie. Here only ``arviz_base`` and PyArrow are needed, which are
imported while chains are sampled, see :mod:`pymc_fastlogp._upstream.nutpie_library`.
"""

import json
import warnings
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_fastlogp._upstream.nutpie_library import LEFT_OUT, SampledModel, Trace
from pymc_fastlogp.compilation import coords
from pymc_fastlogp.compilation.coords import named_dims

if TYPE_CHECKING:
    import pymc as pm
    from xarray import Dataset, DataTree

WARMUP = "warmup_"


def import_arviz() -> None:
    """Import the packages that :func:`datatree` needs."""
    import arviz_base  # noqa: F401
    import pyarrow  # noqa: F401


def datatree(
    trace: Trace,
    model: SampledModel,
    transformed: Sequence[str],
    *,
    save_warmup: bool,
    store_unconstrained: bool,
) -> "DataTree":
    """Return the draws as ``nutpie.sample`` returns them.

    Parameters
    ----------
    trace : Trace
        The draws.
    model : SampledModel
        The model that was sampled.
    transformed : sequence of str
        Names of the unconstrained stored variables.
    save_warmup, store_unconstrained : bool
        Whether the result has tuning draws and unconstrained draws.
    """
    from arviz_base import rcParams
    from xarray import DataTree

    left_out = {*LEFT_OUT} - ({"unconstrained_draw"} if store_unconstrained else set())
    # As in nutpie, a statistic takes precedence over a variable of the same name.
    dims: dict[str, list[str]] = {}
    dims_of_stats: dict[str, list[str]] = {}
    groups: dict[str, dict[str, np.ndarray]] = {}
    unconstrained: dict[str, dict[str, np.ndarray]] = {}
    needs_warmup = save_warmup or (store_unconstrained and transformed)
    for prefix in ("", WARMUP) if needs_warmup else ("",):
        draws = _stacked(_parts(trace.draws, trace.stats, prefix), set(), dims)
        moved = {x: draws.pop(x) for x in transformed if x in draws}
        # As in nutpie, also without tuning draws.
        if store_unconstrained and moved:
            unconstrained[f"{prefix}unconstrained_posterior"] = moved
        if save_warmup or prefix != WARMUP:
            groups[f"{prefix}posterior"] = draws
            stats = _parts(trace.stats, trace.stats, prefix)
            groups[f"{prefix}sample_stats"] = _stacked(stats, left_out, dims_of_stats)
    attrs = {
        "inference_library": "nutpie",
        "inference_library_version": trace.version,
        "inference_library_settings": json.dumps(trace.settings),
    }
    dims |= dims_of_stats
    samples = rcParams["data.sample_dims"]
    tree = DataTree()
    _add_groups(
        tree,
        {
            name: _dataset(x, dims, model.coords, attrs if name == "sample_stats" else {}, samples)
            for name, x in (groups | unconstrained).items()
        },
    )
    return tree


def _dataset(
    arrays: Mapping[str, np.ndarray],
    dims: Mapping[str, Sequence[str | None]],
    coords: Mapping[str, Any],
    attrs: Mapping[str, Any],
    sample_dims: Sequence[str],
) -> "Dataset":
    """Return a group as ``arviz_base.dict_to_dataset`` makes it, which copies all coordinates for each variable."""
    import pandas as pd
    from arviz_base import dict_to_dataset, make_attrs, rcParams
    from xarray import Dataset

    variables: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
    lengths: dict[str, int] = {}
    for name, x in arrays.items():
        names = _dim_names(name, x.ndim, dims.get(name, ()), sample_dims)
        variables[name] = (names, x)
        for dim, n in zip(names, x.shape, strict=True):
            if lengths.setdefault(dim, n) != n:  # variables that ArviZ aligns
                options: Any = {"coords": coords, "dims": dims, "sample_dims": sample_dims}
                return dict_to_dataset(arrays, attrs=attrs, **options)
    origin = rcParams["data.index_origin"]
    indices = {
        dim: pd.Index(coords[dim], tupleize_cols=False, copy=False)
        if dim in coords
        else pd.RangeIndex(origin, origin + n)
        for dim, n in lengths.items()
    }
    # nutpie has statistics that are called chain and draw.
    others = {name: x for name, x in variables.items() if name not in indices}
    return Dataset(others, indices, make_attrs(attrs, sample_dims=sample_dims))


def _dim_names(
    name: str, ndim: int, dims: Sequence[str | None], sample_dims: Sequence[str]
) -> tuple[str, ...]:
    """Return the dimensions of a variable; unnamed ones are numbered."""
    given = [*(dim for dim in sample_dims if dim not in dims), *dims]
    given += [None] * (ndim - len(given))
    return named_dims(name, given)


def _add_groups(tree: "DataTree", groups: Mapping[str, "Dataset"]) -> None:
    """Add groups to a tree. ``tree[name] = group`` and ``DataTree.from_dict`` copy each group several times."""
    from xarray import DataTree

    tree.children = {**tree.children, **{name: DataTree(x) for name, x in groups.items()}}


def _parts(batches: Sequence[Any], stats: Sequence[Any], prefix: str) -> list[Any]:
    """Return the tuning rows of each chain for the prefix ``WARMUP``, else the other rows."""
    import pyarrow

    ends = [int(pyarrow.array(x.column("tuning")).to_numpy(False).sum()) for x in stats]
    if prefix == WARMUP:
        return [batch.slice(0, end) for batch, end in zip(batches, ends, strict=True)]
    return [
        batch.slice(end, batch.num_rows - end) for batch, end in zip(batches, ends, strict=True)
    ]


def _stacked(
    batches: Sequence[Any], left_out: set[str], dims: dict[str, list[str]]
) -> dict[str, np.ndarray]:
    """Return the columns of all chains by name, shape ``(n_chains, n_draws, ...)``, and add their dimensions to ``dims``. Missing values are NaN, None or zero."""
    n_draws = max(batch.num_rows for batch in batches)
    found: dict[str, np.ndarray] = {}
    for chain, batch in enumerate(batches):
        for name in batch.column_names:
            if name in left_out:
                continue
            column = batch.column(name)
            dims[name], shape = _dims_and_shape(column)
            values, is_missing = _values(column, shape)
            if name not in found:
                found[name] = _missing((len(batches), n_draws, *shape), values.dtype)
            part = found[name][chain, : batch.num_rows]
            part[... if is_missing is None else ~is_missing] = values
    return found


def _dims_and_shape(column: Any) -> tuple[list[str], list[int]]:
    """Return the dimensions and the shape in the metadata of a column."""
    metadata: Mapping[bytes, bytes] = column.field.metadata
    names, sizes = (metadata.get(key, b"").decode() for key in (b"dims", b"shape"))
    return names.split(",") if names else [], [int(x) for x in sizes.split(",")] if sizes else []


def _values(column: Any, shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the values of a column, shape ``(n, *shape)``, and the mask of missing rows, shape ``(n_rows,)``, None if no row is missing."""
    import pyarrow

    array = pyarrow.array(column)
    n_missing, is_missing = array.null_count, None
    if n_missing:
        is_missing = array.is_null().to_numpy(False)
        array = array.drop_null()
    if hasattr(array, "flatten"):  # each row is a list
        array = array.flatten()
    values = array.to_numpy(False).astype(array.type.to_pandas_dtype(), copy=False)
    return values.reshape((len(column) - n_missing, *shape)), is_missing


def _missing(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "f":
        return np.full(shape, np.nan, dtype)
    return np.full(shape, None) if dtype.hasobject else np.zeros(shape, dtype)


def common_length(idata: "DataTree") -> "DataTree":
    """Return draws without the missing values of chains that were interrupted, and warn about them.

    As in ``pm.sample``, the kept chains maximize the total number of draws when all are cut to the length of the shortest.

    Parameters
    ----------
    idata : DataTree
        Draws, changed in place; missing values are NaN.
    """
    from xarray import DataTree

    draws = _settings(idata)["num_draws"]
    # Every draw has a step size, a positive number.
    step_size = idata["sample_stats"]["step_size"]
    # Reads one chunk per chain of a zarr store.
    last = step_size.isel(draw=slice(-1, None))
    if step_size.sizes["draw"] == draws and last.notnull().all():
        return idata
    lengths = np.array([_length(step_size.isel(chain=k)) for k in range(step_size.sizes["chain"])])
    n_used = len(lengths) - int(np.argmax(np.sort(lengths) * np.arange(len(lengths), 0, -1)))
    used = np.sort(np.argsort(-lengths, kind="stable")[:n_used])
    length = int(lengths[used].min())
    chains, counts = (", ".join(map(str, x)) for x in (used, lengths))
    warnings.warn(
        f"Sampling was interrupted: of {draws} draws, chains have {counts}."
        f" The result has the first {length} of {'chain' if n_used == 1 else 'chains'} {chains}.",
        UserWarning,
        stacklevel=4,
    )
    for name, group in [*idata.children.items()]:
        kept = group.to_dataset()
        if "chain" in kept.dims:
            kept = kept.isel(chain=used)
            n_draws = kept.sizes["draw"] if name.startswith(WARMUP) else length
            idata[name] = DataTree(kept.isel(draw=slice(n_draws)))
    return idata


def _length(values: Any) -> int:
    """Return the number of values before the missing ones at the end, by bisection: an array in a store is read by chunks."""
    return bisect_left(range(values.size), True, key=lambda k: bool(values[k].isnull()))


def restore_coords(idata: "DataTree", model: "pm.Model", given: Mapping[str, Any]) -> None:
    """Replace positions that were passed to nutpie by the user's coordinates, see :func:`~pymc_fastlogp.compilation.coords.for_nutpie`.

    Parameters
    ----------
    idata : DataTree
        Draws, changed in place.
    model : pymc.Model
        The user's model.
    given : mapping of str to Index
        Coordinates of the compiled model.
    """
    from xarray import DataTree

    user_arrays = coords.user_arrays(model)
    replaced = [name for name, x in given.items() if not coords.is_accepted(x)]
    for name, group in [*idata.children.items()]:
        dataset = group.to_dataset()
        of_user = {dim: (dim, user_arrays[dim]) for dim in replaced if dim in dataset.dims}
        if of_user:
            idata[name] = DataTree(dataset.assign_coords(of_user))


def add_data(idata: "DataTree", model: "pm.Model", sampling_time: float) -> None:
    """Add the groups and attributes that ``pm.sample`` adds to the draws of nutpie: data of the model and sampling time.

    Parameters
    ----------
    idata : DataTree
        Draws, changed in place.
    model : pymc.Model
        The user's model.
    sampling_time : float
        Sampling time in seconds.
    """
    from pymc_fastlogp._upstream.pymc_sample import attrs_of_pymc, data_of_groups, make_attrs

    user_coords, dims = coords.user_arrays(model), model.named_vars_to_dims
    data = {
        name: _dataset(arrays, dims, user_coords, attrs_of_pymc(), ())
        for name, arrays in data_of_groups(model).items()
    }
    _add_groups(idata, data)
    of_stats = idata.sample_stats.attrs
    attrs = {
        "inference_library": "nutpie",
        "inference_library_version": of_stats["inference_library_version"],
        "sampling_time": sampling_time,
        "tuning_steps": _settings(idata)["num_tune"],
    }
    idata.posterior.attrs.update(make_attrs(attrs))


def _settings(idata: "DataTree") -> dict[str, Any]:
    """Return the settings of the sampler."""
    attrs = idata["sample_stats"].attrs
    return json.loads(attrs["inference_library_settings"])["settings"]
