"""Effective sample size of the worst quantity."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def effective(values: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the smallest effective sample sizes and the largest R-hat, and means with their errors.

    Parameters
    ----------
    values : mapping of str to ndarray, shape (chains, draws, ...)
        Draws by name of a variable. Entries that are the same in all draws are left out.

    Returns
    -------
    dict
        ``bulk``, ``tail`` and ``rhat``, ``slowest`` as the name of the entry that has the smallest of both sizes, and ``means`` and ``errors`` by entry.
    """
    import arviz as az

    flat = np.concatenate([x.reshape(*x.shape[:2], -1) for x in values.values()], axis=-1)
    names = [f"{x}[{i}]" for x, v in values.items() for i in range(v[0, 0].size)]
    is_moving = np.ptp(flat, axis=(0, 1)) > 0
    kept = [name for name, moves in zip(names, is_moving, strict=True) if moves]
    moving = flat[..., is_moving]
    data = az.from_dict({"posterior": {"x": moving}})
    bulk, tail = (az.ess(data, method=x)["x"].to_numpy() for x in ("bulk", "tail"))
    errors = az.mcse(data, method="mean")["x"].values
    return {
        "bulk": float(np.nanmin(bulk)),
        "tail": float(np.nanmin(tail)),
        "slowest": kept[int(np.nanargmin(np.minimum(bulk, tail)))],
        "rhat": float(np.nanmax(az.rhat(data)["x"])),
        "means": dict(zip(kept, moving.mean((0, 1)).tolist(), strict=True)),
        "errors": dict(zip(kept, errors.tolist(), strict=True)),
    }
