"""Gain and cost of the lift of an Elemwise through sets, from which its limits are taken.

``python -m benchmarks.lift_cost`` compiles small functions with all limits lifted and with the plugin
off, times them in turn on one core, and prints a table of ratios. Each call costs Python's overhead
as well, which is why the smallest size says little. A second table does the same for the
priors whose triangle ``moves_to_set`` writes as one set.
"""

import os
import time
from collections.abc import Callable
from unittest import mock

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable
from rich.console import Console
from rich.progress import track
from rich.table import Table

import pymc_fastlogp
from pymc_fastlogp.config import switched
from pymc_fastlogp.rewrites.packed_matrices import lift_set_subtensor

SIZES = (100, 10_000, 100_000)
LKJ_SIZES = (3, 10, 30, 60, 90)


def _filled(x: TensorVariable, step: int) -> TensorVariable:
    """Return zeros with every ``step``-th entry set from ``x``."""
    n = x.type.shape[0]
    return pt.zeros(n)[::step].set(x[::step])


def _read_twice(s: TensorVariable, x: TensorVariable) -> TensorVariable:
    return pt.exp(s).sum() + (s * x).sum()


CASES: dict[str, Callable[[TensorVariable], TensorVariable]] = {
    "exp, a tenth written": lambda x: pt.exp(_filled(x, 10)).sum(),
    "exp, half written": lambda x: pt.exp(_filled(x, 2)).sum(),
    "exp, all written": lambda x: pt.exp(_filled(x, 1)).sum(),
    "exp, a tenth written, read twice": lambda x: _read_twice(_filled(x, 10), x),
    "arithmetic, a tenth written": lambda x: ((2 * _filled(x, 10) + 1) * x).sum(),
    "arithmetic, half written": lambda x: ((2 * _filled(x, 2) + 1) * x).sum(),
}


def ratio(make: Callable[[TensorVariable], TensorVariable], size: int, rounds: int = 9) -> float:
    """Return how many times longer the function takes without the lift than with it."""
    x = pt.vector("x", shape=(size,))
    value = np.linspace(0.1, 1.0, size)
    functions = []
    for on in (False, True):
        with switched(on):
            functions.append(pytensor.function([x], make(x), mode="NUMBA", trust_input=True))
    calls = max(10, 1_000_000 // size)
    return float(np.median([_seconds(functions, value, calls) for _ in range(rounds)]))


def _seconds(functions: list[Callable], value: np.ndarray, calls: int) -> float:
    """Return the ratio of the times that two functions take in turn."""
    seconds = []
    for function in functions:
        function(value)
        begin = time.perf_counter()
        for _ in range(calls):
            function(value)
        seconds.append(time.perf_counter() - begin)
    return seconds[0] / seconds[1]


def lkj_ratio(n: int) -> float:
    """Return the same for logp and gradient of an LKJ prior, called as nutpie does."""
    with pm.Model() as model:
        pm.LKJCorr("L", n=n, eta=2.0)
    return pymc_fastlogp.benchmark(model).ratio("off").median


def main() -> None:
    """Print the table."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    table = Table("case", *(f"{n:,} entries" for n in SIZES), title="time off / time on")
    priors = Table("prior", "time off / time on")
    with mock.patch.object(lift_set_subtensor, "pays", return_value=True):
        for name, make in track(CASES.items(), description="compiling and timing"):
            table.add_row(name, *(f"{ratio(make, n):.2f}" for n in SIZES))
    for n in track(LKJ_SIZES, description="LKJCorr priors"):
        priors.add_row(f"LKJCorr, n = {n}", f"{lkj_ratio(n):.2f}")
    Console().print(table, priors)


if __name__ == "__main__":
    main()
