"""Pools of processes: spawned by the standard library, with the patch by the initializer, and loky's by joblib, with the environment variable."""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from joblib import Parallel, delayed

import pymc_fastlogp


def fit(seed: int) -> tuple[bool, float]:
    """Fit as a library does, and return whether ``pm.sample`` is patched, and the posterior mean."""
    import pymc as pm

    with pm.Model():
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("y", mu, 1.0, observed=np.full(100, float(seed)))
        options = {"chains": 1, "cores": 1, "progressbar": False, "random_seed": seed}
        idata = pm.sample(200, tune=200, **options)
    return hasattr(pm.sample, "_pymc_fastlogp_original"), float(idata["posterior"]["mu"].mean())


def imported_and_fit(seed: int) -> tuple[bool, float]:
    """Fit in a worker that imports the package."""
    import pymc_fastlogp  # noqa: F401

    return fit(seed)


def check(results: list[tuple[bool, float]]) -> None:
    assert [patched for patched, _ in results] == [True, True]
    assert np.allclose([mean for _, mean in results], [1, 2], atol=0.1)


if __name__ == "__main__":
    spawn = get_context("spawn")
    patch = pymc_fastlogp.patch_pymc
    with ProcessPoolExecutor(2, mp_context=spawn, initializer=patch) as pool:
        check(list(pool.map(fit, [1, 2])))
    os.environ["PYMC_FASTLOGP_PATCH"] = "1"
    check(Parallel(2, backend="loky")(delayed(imported_and_fit)(seed) for seed in (1, 2)))
