"""Memory and time of compilation for many rows.

For each model and side, a process builds the model, compiles it, and reports the peak of its memory above the memory that it held before, which
includes the data, relative to the bytes of the data. The sides "off" and "on" compile by ``nutpie.compile_pymc_model(model, freeze_model=True)``,
"sample" by :func:`pymc_fastlogp.compile_pymc_model`. A model of a thousand rows is
compiled first, so that libraries and the caches of compilers do not count. Linux only: other systems cannot reset a peak.
"""

import argparse
import gc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from rich.progress import track
from rich.table import Table

import pymc_fastlogp
from benchmarks import data
from benchmarks.fresh_process import call
from benchmarks.machine import process_memory
from benchmarks.models import mrp, radon, varying_slope
from pymc_fastlogp.benchmarking.clock import seconds_now
from pymc_fastlogp.benchmarking.run import compile_model

ROWS, WARM_UP_ROWS, GROUPS = 10_000_000, 1_000, 200
SIDES = "off", "on", "sample"


def counts(rows: int) -> pm.Model:
    """Return a model of counts in groups with two levels of a covariate."""
    rng = np.random.default_rng(data.SEED)
    group, treated = rng.integers(GROUPS, size=rows), rng.integers(2, size=rows)
    y = rng.poisson(np.exp(rng.normal(1, 0.3, size=GROUPS)[group] + 0.2 * treated))
    with pm.Model(coords={"group": range(GROUPS)}) as model:
        a = pm.Normal("a", dims="group")
        b = pm.Normal("b")
        eta = a[pm.Data("group_index", group)] + b * pm.Data("treated", treated)
        pm.Poisson("y", pm.math.exp(eta), observed=pm.Data("observed", y))
    return model


def logit(rows: int) -> pm.Model:
    """Return a model of binary outcomes with a continuous covariate, so that no two rows are equal."""
    rng = np.random.default_rng(data.SEED)
    with pm.Model() as model:
        group = pm.Data("group_index", rng.integers(GROUPS, size=rows))
        eta = pm.Normal("a", shape=GROUPS)[group] + pm.Normal("b") * pm.Data("x", rng.random(rows))
        pm.Bernoulli("y", logit_p=eta, observed=pm.Data("observed", rng.integers(2, size=rows)))
    return model


# Models whose rows repeat or become triangular factors.
MODELS: dict[str, Callable[[int], pm.Model]] = {
    "counts": counts,
    "radon": radon.make,
    "varying_slope": varying_slope.make,
    "mrp": mrp.make,
}
ALL_MODELS = MODELS | {"logit": logit}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("models", nargs="*", metavar="MODEL", default=[*ALL_MODELS])
    parser.add_argument("--rows", type=int, default=ROWS)


def tables(arguments: argparse.Namespace) -> Iterator[Table]:
    """Yield a table with a row for each model and side."""
    columns = ("model", "side", "data, MB", "peak / data", "seconds")
    table = Table(*columns, title=f"{arguments.rows} rows")
    for name in track(arguments.models):
        for side in SIDES:
            size, peak, seconds = call(measure, name, arguments.rows, side)
            table.add_row(name, side, f"{size / 1e6:.0f}", f"{peak / size:.2f}", f"{seconds:.1f}")
    yield table


def measure(name: str, rows: int, side: str) -> tuple[int, int, float]:
    """Return the bytes of a model's data, the peak above the memory before, and the seconds."""
    compiled = {"sample": pymc_fastlogp.compile_pymc_model}.get(
        side, partial(compile_model, side=side)
    )
    compiled(ALL_MODELS[name](WARM_UP_ROWS))
    model = ALL_MODELS[name](rows)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before, start = process_memory("VmRSS"), seconds_now()
    compiled(model)
    seconds = seconds_now() - start
    return data_bytes(model), process_memory("VmHWM") - before, seconds


def data_bytes(model: pm.Model) -> int:
    """Return the size of a model's data."""
    held = [x for x in model.named_vars.values() if isinstance(x, SharedVariable)]
    return sum(x.get_value(borrow=True).nbytes for x in held)
