"""Ways to fit one model to many data sets, each in the process of :mod:`benchmarks.many_models` that measures it."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pymc as pm

ROWS, GROUPS = 500, 20
# The defaults of pm.sample on two cores.
DRAWS, TUNE, CHAINS, CORES = 1000, 1000, 2, 2
FITS = 1000
OPTIONS: dict[str, Any] = {"draws": DRAWS, "tune": TUNE, "chains": CHAINS}


def make() -> pm.Model:
    """Return the model with the first data set."""
    rng = np.random.default_rng(0)
    group, x = np.arange(ROWS) % GROUPS, rng.normal(size=ROWS)
    with pm.Model(coords={"group": range(GROUPS)}) as model:
        mu, tau, b = pm.Normal("mu"), pm.HalfNormal("tau"), pm.Normal("b")
        a = pm.Normal("a", mu, tau, dims="group")
        eta = a[pm.Data("group_index", group)] + b * pm.Data("x", x)
        pm.Normal("y", eta, pm.HalfNormal("sigma"), observed=pm.Data("seen", simulated(0)["seen"]))
    return model


def simulated(k: int) -> dict[str, np.ndarray]:
    """Return the outcomes of a data set."""
    rng = np.random.default_rng([1, k])
    group, x = np.arange(ROWS) % GROUPS, np.random.default_rng(0).normal(size=ROWS)
    effects = rng.normal(0.3, 0.8, GROUPS)
    return {"seen": effects[group] + 0.5 * x + rng.normal(0, 0.7, ROWS)}


def by_pymc(n: int) -> Iterator[float]:
    """Yield the time after each fit."""
    model = make()
    for k in range(n):
        with model:
            pm.set_data(simulated(k))
            pm.sample(cores=CORES, random_seed=k, **OPTIONS, progressbar=False)
        yield time.perf_counter()


def by_nutpie(n: int) -> Iterator[float]:
    """Yield the time after each fit."""
    import nutpie

    compiled = nutpie.compile_pymc_model(make())
    for k in range(n):
        changed = compiled.with_data(**simulated(k))
        nutpie.sample(changed, cores=CORES, seed=k, progress_bar=False, **OPTIONS)
        yield time.perf_counter()


def by_sample(n: int) -> Iterator[float]:
    """Yield the time after each fit."""
    import pymc_fastlogp

    model = make()
    for k in range(n):
        with model:
            pm.set_data(simulated(k))
            pymc_fastlogp.sample(cores=CORES, random_seed=k, **OPTIONS, progressbar=False)
        yield time.perf_counter()


def by_sample_many(n: int) -> Iterator[float]:
    """Yield the time after each fit."""
    import pymc_fastlogp

    data_sets = (simulated(k) for k in range(n))
    kept = ["mu", "tau", "b", "a", "sigma"]
    options = OPTIONS | {"keep": kept, "random_seed": 0, "progressbar": False}
    for fit in pymc_fastlogp.sample_many(make(), data_sets, **options):
        fit.result()
        yield time.perf_counter()


SIDES: dict[str, tuple[Callable[[int], Iterator[float]], int]] = {
    # Each with the number of fits that are run by default.
    "pm.sample": (by_pymc, 4),
    "nutpie": (by_nutpie, 15),
    "sample": (by_sample, 10),
    "sample_many": (by_sample_many, 200),
}


def measure(side: str, n: int) -> list[float]:
    """Return the seconds from the start until each fit is there."""
    start = time.perf_counter()
    return [end - start for end in SIDES[side][0](n)]
