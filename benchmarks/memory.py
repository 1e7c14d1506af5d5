"""Memory and time of compilation for many rows: ``python -m benchmarks.memory [--rows N] [MODEL ...]``.

For each model and side, a process of its own builds the model, compiles it as users do, with
``nutpie.compile_pymc_model(model, freeze_model=True)``, and reports the peak of its memory above what it held before,
which includes the data, over the bytes of the data. A model of a thousand rows is compiled first, so
that libraries and the caches of compilers do not count.

Linux only: other systems cannot forget a peak.
"""

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from rich.console import Console
from rich.table import Table

from benchmarks import data
from benchmarks.models import mrp, radon, varying_slope
from pymc_fastlogp.benchmarking.run import compile_model

ROWS, WARM_UP_ROWS, GROUPS = 10_000_000, 1_000, 200


def counts(rows: int) -> pm.Model:
    """Make counts in groups with two levels of a covariate."""
    rng = np.random.default_rng(data.SEED)
    group, treated = rng.integers(GROUPS, size=rows), rng.integers(2, size=rows)
    y = rng.poisson(np.exp(rng.normal(1, 0.3, size=GROUPS)[group] + 0.2 * treated))
    with pm.Model(coords={"group": range(GROUPS)}) as model:
        a = pm.Normal("a", dims="group")
        b = pm.Normal("b")
        eta = a[pm.Data("group_index", group)] + b * pm.Data("treated", treated)
        pm.Poisson("y", pm.math.exp(eta), observed=pm.Data("observed", y))
    return model


MODELS: dict[str, Callable[[int], pm.Model]] = {
    "counts": counts,
    "radon": radon.make,
    "varying_slope": varying_slope.make,
    "mrp": mrp.make,
}


def main() -> None:
    """Measure all models, or one in this process if a side is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", default=[*MODELS])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--side", choices=["off", "on"])
    arguments = parser.parse_args()
    if arguments.side is not None:
        [name] = arguments.models
        print(json.dumps(measure(name, arguments.rows, arguments.side)))
        return
    table = Table(
        "model", "side", "data, MB", "peak / data", "seconds", title=f"{arguments.rows} rows"
    )
    for name in arguments.models:
        for side in ("off", "on"):
            result = _in_child(name, arguments.rows, side)
            megabytes = f"{result['data'] / 1e6:.0f}"
            share = f"{result['peak'] / result['data']:.2f}"
            table.add_row(name, side, megabytes, share, f"{result['seconds']:.1f}")
    Console().print(table)


def measure(name: str, rows: int, side: str) -> dict[str, float]:
    """Return the bytes of a model's data, the peak above what was there before, and the seconds."""
    compile_model(MODELS[name](WARM_UP_ROWS), side)
    model = MODELS[name](rows)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    before, start = memory("VmRSS"), time.process_time()
    compile_model(model, side)
    seconds = time.process_time() - start
    return {"data": data_bytes(model), "peak": memory("VmHWM") - before, "seconds": seconds}


def data_bytes(model: pm.Model) -> int:
    """Return how large the data of a model are."""
    held = [x for x in model.named_vars.values() if isinstance(x, SharedVariable)]
    return sum(x.get_value(borrow=True).nbytes for x in held)


def memory(kind: str) -> int:
    """Return a figure of this process's memory, in bytes."""
    status = Path("/proc/self/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith(f"{kind}:")]
    return int(line.split()[1]) * 1024


def _in_child(name: str, rows: int, side: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.memory", name, "--rows", str(rows), "--side", side]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(answer.splitlines()[-1])


if __name__ == "__main__":
    main()
