"""Memory that a process keeps of models compiled and dropped: ``python -m benchmarks.many_models [--models N]``.

For each side, a process of its own with an empty cache on disk compiles small models one after the other, as PyMC's samplers do,
evaluates each once and drops it. No two have the same data or lengths. Every 25 models it reports its resident
memory; with ``--python``, which takes twice as long, what Python has allocated since the first five, which compile what all share.
Upstream keeps memory of each function, too: Numba frees no code, and PyTensor remembers Ops.

Linux only.
"""

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.random import Generator
from pytensor.tensor.variable import TensorVariable
from rich.console import Console
from rich.table import Table

from benchmarks.fresh_process import environment
from benchmarks.memory import memory
from pymc_fastlogp.config import switched

MODELS, WARM_UP, EVERY = 200, 5, 25


def poisson(eta: TensorVariable, rows: int, rng: Generator) -> None:
    """Add counts to a model."""
    pm.Poisson("y", pt.exp(eta), observed=rng.poisson(2, size=rows))


def bernoulli(eta: TensorVariable, rows: int, rng: Generator) -> None:
    """Add outcomes of 0 and 1 to a model."""
    pm.Bernoulli("y", logit_p=eta, observed=rng.integers(2, size=rows))


def student_t(eta: TensorVariable, rows: int, rng: Generator) -> None:
    """Add heavy-tailed measurements to a model."""
    pm.StudentT("y", nu=4, mu=eta, sigma=pm.HalfNormal("s"), observed=rng.normal(size=rows))


def normal(eta: TensorVariable, rows: int, rng: Generator) -> None:
    """Add measurements to a model."""
    pm.Normal("y", eta, pm.HalfNormal("s"), observed=rng.normal(size=rows))


LIKELIHOODS: list[Callable[[TensorVariable, int, Generator], None]] = [
    *(poisson, bernoulli, student_t, normal)
]


def make(k: int) -> pm.Model:
    """Return a regression with groups, another one for each number."""
    rng = np.random.default_rng(k)
    rows, groups, slopes = 200 + k, 3 + k % 17, 1 + k % 3
    group, x = rng.integers(groups, size=rows), rng.normal(size=(rows, slopes))
    with pm.Model() as model:
        effects, slope = pm.Normal("effects", shape=groups), pm.Normal("slope", shape=slopes)
        LIKELIHOODS[k % len(LIKELIHOODS)](effects[group] + (x * slope).sum(axis=1), rows, rng)
    return model


def compile_and_drop(k: int) -> None:
    """Compile the log density and gradient of a model, and evaluate it."""
    model = make(k)
    function = model.logp_dlogp_function(ravel_inputs=True, mode="NUMBA")
    function.set_extra_values({})
    function(np.zeros(sum(value.size for value in model.initial_point().values())))


def measure(models: int, python: bool) -> Iterator[dict[str, int]]:
    """Yield what is used after every 25 models, in bytes."""
    for k in range(models):
        if k == WARM_UP and python:
            gc.collect()
            tracemalloc.start()
        compile_and_drop(k)
        if (k + 1) % EVERY == 0:
            gc.collect()
            used = tracemalloc.get_traced_memory()[0] if python else memory("VmRSS")
            yield {"models": k + 1, "bytes": used}


def main() -> None:
    """Measure both sides, or one in this process if it is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=MODELS)
    parser.add_argument("--side", choices=["off", "on"])
    parser.add_argument("--python", action="store_true", help="count what Python has allocated")
    arguments = parser.parse_args()
    if arguments.side is not None:
        with switched(arguments.side == "on"):
            for result in measure(arguments.models, arguments.python):
                print(json.dumps(result), flush=True)
        return
    what = "Python's memory" if arguments.python else "resident memory"
    table = Table("models", "off, MB", "on, MB", title=f"{what} after compiling and dropping")
    results = [_in_child(side, arguments) for side in ("off", "on")]
    for off, on in zip(*results, strict=True):
        megabytes = (f"{result['bytes'] / 1e6:.1f}" for result in (off, on))
        table.add_row(str(off["models"]), *megabytes)
    Console().print(table)


def _in_child(side: str, arguments: argparse.Namespace) -> list[dict[str, int]]:
    command = [sys.executable, "-m", "benchmarks.many_models", "--side", side]
    command += ["--models", str(arguments.models), *["--python"] * arguments.python]
    with tempfile.TemporaryDirectory() as folder:
        output = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, env=environment(folder)
        ).stdout
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


if __name__ == "__main__":
    main()
