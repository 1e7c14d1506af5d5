"""Memory that a process keeps of models that were compiled and dropped.

For each side, a process with an empty cache on disk compiles small models, of different data and lengths, as PyMC's samplers do, evaluates each once
and drops it. Every 25 models it reports its resident memory, or with ``--python``, which takes twice as long, the memory that Python has allocated since
the first five models. Upstream keeps memory of each function too: Numba frees no code, and PyTensor caches Ops. Linux only.
"""

import argparse
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from rich.table import Table

from benchmarks.fresh_process import call
from benchmarks.machine import process_memory
from pymc_fastlogp.config import switched

WARM_UP, EVERY = 5, 25

# Likelihoods by linear predictor and generator.
LIKELIHOODS: tuple[Callable[[Any, np.random.Generator, int], Any], ...] = (
    lambda eta, rng, n: pm.Poisson("y", pt.exp(eta), observed=rng.poisson(2, size=n)),
    lambda eta, rng, n: pm.Bernoulli("y", logit_p=eta, observed=rng.integers(2, size=n)),
    lambda eta, rng, n: pm.StudentT(
        "y", nu=4, mu=eta, sigma=pm.HalfNormal("s"), observed=rng.normal(size=n)
    ),
    lambda eta, rng, n: pm.Normal("y", eta, pm.HalfNormal("s"), observed=rng.normal(size=n)),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--python", action="store_true", help="count the allocations of Python")


def tables(arguments: argparse.Namespace) -> Iterator[Table]:
    """Yield a table with a row for every 25 models."""
    kind = "Python's memory" if arguments.python else "resident memory"
    table = Table("models", "off, MB", "on, MB", title=f"{kind} after compiling and dropping")
    sides = [call(measure, side, arguments.models, arguments.python) for side in ("off", "on")]
    for k, both in enumerate(zip(*sides, strict=True), 1):
        table.add_row(str(k * EVERY), *(f"{used / 1e6:.1f}" for used in both))
    yield table


def make(k: int) -> pm.Model:
    """Return a regression with groups, a different one for each number."""
    rng = np.random.default_rng(k)
    rows, groups, slopes = 200 + k, 3 + k % 17, 1 + k % 3
    group, x = rng.integers(groups, size=rows), rng.normal(size=(rows, slopes))
    with pm.Model() as model:
        effects, slope = pm.Normal("effects", shape=groups), pm.Normal("slope", shape=slopes)
        LIKELIHOODS[k % len(LIKELIHOODS)](effects[group] + (x * slope).sum(axis=1), rng, rows)
    return model


def measure(side: str, models: int, python: bool) -> list[int]:
    """Return the bytes that are used after every 25 models in this process."""
    used = []
    with switched(side == "on"):
        for k in range(models):
            if k == WARM_UP and python:
                gc.collect()
                tracemalloc.start()
            _compile_and_drop(make(k))
            if (k + 1) % EVERY == 0:
                gc.collect()
                traced = tracemalloc.get_traced_memory()[0]
                used.append(traced if python else process_memory("VmRSS"))
    return used


def _compile_and_drop(model: pm.Model) -> None:
    function = model.logp_dlogp_function(ravel_inputs=True, mode="NUMBA")
    function.set_extra_values({})
    function(np.zeros(sum(value.size for value in model.initial_point().values())))
