"""Fits on disk: a folder with two files for each fit, the value and a note.

The value is a netCDF file, or a zarr group if the name of the folder ends in ``.zarr``. The note is JSON: seed, time and problems of the fit, the kind of the value,
and the hash of the data. The note is written last, so a value without a note is a write that was interrupted, which is done again.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from pymc_fastlogp.many.fit import Fit, Outcome

ZARR, NETCDF, NOTE = ".zarr", ".nc", ".json"
NETCDF_PACKAGES = ("netCDF4", "h5netcdf")


def refuse(folder: Path) -> None:
    """Raise ImportError if a package for the format of a folder is not installed."""
    if folder.suffix != ZARR and not any(map(find_spec, NETCDF_PACKAGES)):
        raise ImportError("a store in netCDF format needs netcdf4: pip install netcdf4")


class Place(NamedTuple):
    """Place of a fit in a store.

    Attributes
    ----------
    path : Path
        File or folder of the value.
    digest : str
        Hash of data and settings.
    """

    path: Path
    digest: str


def place_of(folder: Path, key: Any, data: Any, settings: Mapping[str, Any]) -> Place:
    """Return the place of a fit. Only data sets that are mappings are hashed."""
    suffix = ZARR if folder.suffix == ZARR else NETCDF
    return Place(folder / f"{quote(str(key), safe='')}{suffix}", _digest(data, settings))


def _digest(data: Any, settings: Mapping[str, Any]) -> str:
    hashed = sha256(json.dumps(dict(settings), default=str, sort_keys=True).encode())
    for name, value in sorted(data.items()) if isinstance(data, Mapping) else ():
        array = np.asarray(value)
        hashed.update(f"{name} {array.dtype} {array.shape}".encode())
        content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
        hashed.update(content)
    return hashed.hexdigest()


def write(place: Place, outcome: Outcome, seed: int) -> None:
    """Write the value of a fit, then its note.

    Raises
    ------
    TypeError
        If the value is no DataTree, Dataset or DataFrame.
    """
    import pandas as pd
    from xarray import Dataset, DataTree

    value, kind = outcome.value, type(outcome.value).__name__
    if isinstance(value, pd.DataFrame):
        value = value.to_xarray()
    if not isinstance(value, DataTree | Dataset):
        raise TypeError(
            f"a store can't hold an object of type {kind}: let keep return a DataTree, Dataset or DataFrame."
        )
    path = place.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ZARR:
        value.to_zarr(path, mode="w", consolidated=False)
    else:
        value.to_netcdf(path)
    note = {
        "digest": place.digest,
        "kind": kind,
        "problems": outcome.problems,
        "n_divergences": outcome.n_divergences,
        "random_seed": seed,
        "seconds": outcome.seconds,
    }
    unfinished = path.with_suffix(f"{NOTE}.unfinished")
    unfinished.write_text(json.dumps(note))
    unfinished.replace(path.with_suffix(NOTE))


def read(place: Place, key: Any) -> Fit | None:
    """Return a fit from the store, None if the fit is missing.

    Raises
    ------
    ValueError
        If the fit is of other data or settings.
    """
    path, note = place.path, None
    with suppress(OSError, json.JSONDecodeError):
        note = json.loads(path.with_suffix(NOTE).read_text())
    if note is None:
        return None
    if note["digest"] != place.digest:
        raise ValueError(
            f"{path} is a fit of other data or settings: give store another folder, or delete the files of {key!r}."
        )
    return Fit(
        key,
        problems=tuple(note["problems"]),
        n_divergences=note["n_divergences"],
        random_seed=note["random_seed"],
        seconds=note["seconds"],
        was_stored=True,
        _read=lambda: _value(path, note["kind"]),
    )


def _value(path: Path, kind: str) -> Any:
    """Return the value, whose arrays are read when they are used."""
    import xarray as xr

    options: dict[str, Any] = {}
    if path.suffix == ZARR:
        options = {"engine": "zarr", "consolidated": False}
    if kind == "DataTree":
        return xr.open_datatree(path, **options)
    value = xr.open_dataset(path, **options)
    return value.to_dataframe() if kind == "DataFrame" else value
