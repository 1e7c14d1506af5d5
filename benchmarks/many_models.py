"""Seconds for many fits of one model: ``python -m benchmarks.many_models [--fits N] [--side NAME ...]``.

The model is a regression of 500 rows in 20 groups, and each data set has other outcomes. Each side runs in a fresh process with empty caches on disk:

- ``pm.sample``: a loop of ``pm.set_data`` and ``pm.sample``, without this package;
- ``nutpie``: the model is compiled once, without this package; a loop of ``with_data`` and ``nutpie.sample``;
- ``sample``: a loop of ``pm.set_data`` and :func:`pymc_fastlogp.sample`;
- ``sample_many``: :func:`pymc_fastlogp.sample_many`, which keeps the draws of all variables but the data.

Loops run a few fits. The seconds of all fits are those of the first fit plus the mean of the others times their number. A run of all sides writes the JSON and the table of the docs;
``--report`` writes the table again.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm

RESULTS = Path(__file__).parent / "results" / "many_models.json"
PAGE = Path(__file__).parents[1] / "docs" / "howto" / "many_models.md"
MARKER = "table of many fits"

ROWS, GROUPS = 500, 20
DRAWS, TUNE, CHAINS, CORES = 1000, 1000, 4, 2
FITS = 1000
OPTIONS: dict[str, Any] = {"draws": DRAWS, "tune": TUNE, "chains": CHAINS}
QUIET: dict[str, Any] = {"progressbar": False, "compute_convergence_checks": False}


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
            pm.sample(cores=CORES, random_seed=k, **OPTIONS, **QUIET)
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
            pymc_fastlogp.sample(cores=CORES, random_seed=k, **OPTIONS, **QUIET)
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
    "pm.sample": (by_pymc, 5),
    "nutpie": (by_nutpie, 20),
    "sample": (by_sample, 10),
    "sample_many": (by_sample_many, FITS),
}


def measure(side: str, n: int) -> list[float]:
    """Return the seconds from the start until each fit is there."""
    start = time.perf_counter()
    return [end - start for end in SIDES[side][0](n)]


def total(ends: list[float], n: int = FITS) -> float:
    """Return the seconds of ``n`` fits, of which the first are measured."""
    each = (ends[-1] - ends[0]) / (len(ends) - 1)
    return ends[0] + (n - 1) * each


def page_table(results: dict[str, Any]) -> str:
    """Return the table of the docs."""
    from benchmarks.report import digits, machine_and_versions

    ends = results["ends"]
    ours = total(ends["sample_many"])
    rows = ["| way | first fit, s | 1000 fits, s | / sample_many |", "| --- | ---: | ---: | ---: |"]
    for side, measured in ends.items():
        seconds = total(measured)
        numbers = (digits(measured[0]), digits(seconds), digits(seconds / ours))
        rows.append(f"| {side} ({len(measured)} fits measured) | {' | '.join(numbers)} |")
    options = f"{CHAINS} chains of {DRAWS} draws after {TUNE} tuning draws"
    where = f"{options}. {CORES} cores of {machine_and_versions(results)}."
    return "\n".join([*rows, "", where])


def publish(results: dict[str, Any]) -> None:
    """Write the table of the docs."""
    from benchmarks.report import insert_table

    PAGE.write_text(insert_table(PAGE.read_text(), page_table(results), MARKER))


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_models")
    parser.add_argument("--fits", type=int, help="fits of each side, in place of the default")
    parser.add_argument("--side", nargs="+", default=[*SIDES], choices=SIDES)
    parser.add_argument("--report", action="store_true", help="only write the table again")
    arguments = parser.parse_args()
    if arguments.report:
        publish(json.loads(RESULTS.read_text()))
        return
    from benchmarks.fresh_process import call
    from benchmarks.machine import machine, versions

    ends = {}
    for side in arguments.side:
        n = max(2, arguments.fits or SIDES[side][1])
        ends[side] = call(measure, side, n, one_core=True)
        print(f"{side}: first {ends[side][0]:.2f} s, {FITS} fits {total(ends[side]):.0f} s")
    if set(ends) == set(SIDES):
        date = datetime.now(UTC).date().isoformat()
        results = {"date": date, "machine": machine(), "versions": versions(), "ends": ends}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        publish(results)


if __name__ == "__main__":
    main()
