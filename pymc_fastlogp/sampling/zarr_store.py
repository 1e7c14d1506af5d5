"""Draws in a zarr store: nutpie's layout, opened with the groups, variables and coordinates of draws in memory.

nutpie stores unconstrained next to constrained values, and statistics of divergences and of mass matrix updates in separate arrays of
shape ``(chain, divergence)``. Such an array loses chains if two chains extend it at the same time, so these arrays are left out.
Arrays are read from the store when they are used.
"""

import json
from collections.abc import Collection, Mapping
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_fastlogp._upstream.nutpie_library import LEFT_OUT
from pymc_fastlogp.sampling.draws import WARMUP

if TYPE_CHECKING:
    import xarray as xr

SAMPLES = ("chain", "draw")
# Settings of nutpie that add statistics.
STATISTICS_ON_REQUEST = (
    "store_divergences",
    "store_gradient",
    "store_mass_matrix",
    "store_transformed",
)


def refuse(path: Path) -> None:
    """Raise an error if draws can't be written to a new store at a path.

    Raises
    ------
    FileExistsError
        If the path is a file, or a folder that is not empty.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"{path} is not empty: give store a new path, or remove the files.")


def created(path: Path, stores: ModuleType) -> Any:
    """Return the store at a path, of nutpie's module of stores, and create its folder if missing."""
    path.mkdir(parents=True, exist_ok=True)
    return stores.LocalStore(str(path.resolve()))


def opened(path: Path) -> "xr.DataTree":
    """Return the store at a path, whose arrays are read when they are used."""
    import xarray as xr

    return xr.open_datatree(path, engine="zarr", consolidated=False)


def datatree(
    stored: "xr.DataTree",
    model: Any,
    transformed: Collection[str],
    *,
    save_warmup: bool,
    store_unconstrained: bool,
    settings: Mapping[str, Any],
) -> "xr.DataTree":
    """Return draws in the layout of draws in memory.

    Parameters
    ----------
    stored : DataTree
        The store, as nutpie opens it.
    model : CompiledPyMCModel or SampledModel
        The model object that was sampled.
    transformed : collection of str
        Names of the unconstrained stored variables.
    save_warmup, store_unconstrained : bool
        Whether the result has tuning draws and unconstrained draws.
    settings : mapping
        Arguments of ``nutpie.sample``. If an argument requests more statistics, such as ``store_mass_matrix``, all statistics keep nutpie's layout.
    """
    from xarray import DataTree

    names = model.shape_info[0]
    all_stats = any(settings.get(name) for name in STATISTICS_ON_REQUEST)
    left_out = {*LEFT_OUT} - ({"unconstrained_draw"} if store_unconstrained else set())
    groups: dict[str, xr.Dataset] = {}
    unconstrained: dict[str, xr.Dataset] = {}
    for prefix in ("", WARMUP):
        draws = stored[f"{prefix}posterior"].to_dataset()
        draws = draws[[name for name in names if name in draws]]
        stats = stored[f"{prefix}sample_stats"].to_dataset()
        moved = [x for x in transformed if x in draws]
        # As in nutpie, also without tuning draws.
        if store_unconstrained and moved:
            unconstrained[f"{prefix}unconstrained_posterior"] = draws[moved]
        if save_warmup or prefix != WARMUP:
            groups[f"{prefix}posterior"] = draws.drop_vars(moved)
            of_draws = [x for x in stats if stats[x].dims[:2] == SAMPLES and x not in left_out]
            groups[f"{prefix}sample_stats"] = (
                stats if all_stats else stats[sorted(of_draws, key=str)]
            )
    attrs = {
        "inference_library": "nutpie",
        "inference_library_version": version("nutpie"),
        "inference_library_settings": json.dumps(
            {
                "sampler": stored.attrs["sampler_kind"],
                "adaptation": stored.attrs["adaptation_kind"],
                "settings": stored.attrs["sampler_settings"],
            }
        ),
    }
    labeled = {
        name: _labeled(group, model.coords) for name, group in (groups | unconstrained).items()
    }
    labeled["sample_stats"].attrs.update(attrs)
    return DataTree.from_dict(labeled)


def _labeled(group: "xr.Dataset", coords: Mapping[str, Any]) -> "xr.Dataset":
    """Return a group with the coordinates of draws in memory: positions for dimensions without coordinates."""
    group = group.drop_vars(list(group.coords))
    return group.assign_coords(
        {dim: (dim, coords.get(str(dim), np.arange(n))) for dim, n in group.sizes.items()}
    )
