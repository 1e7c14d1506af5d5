"""Nanoseconds per row of the scatter ``y[i] += f(x)``, by mean run length of ``i``.

Each implementation of :mod:`pymc_fastlogp.kernel.emit.scatter` is compiled by different facts about the index, and all run in turn on one core. The
index is sorted, with as many groups as give the mean run length. In the column "apart" the groups alternate, so that all lanes of a vector differ.
"""

import argparse
from collections.abc import Iterator

import numpy as np
import pytensor.scalar as ps
from rich.progress import track
from rich.table import Table

from benchmarks.machine import machine
from benchmarks.native_loop import timed
from pymc_fastlogp.analysis.index_facts import Neighbors
from pymc_fastlogp.benchmarking.native import Timer
from pymc_fastlogp.benchmarking.pairing import time_in_turn
from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Index, Load, Role
from pymc_fastlogp.kernel.ir.loops import Accumulate, Loop, Program
from pymc_fastlogp.kernel.native.target import default_width
from tests.kernel.native_kernel import compile_native

ROWS = 5_000
RUNS = (1, 2, 4, 8, 16, 24, 32, 64, 128, 1024)
APART = "apart"
ROUNDS, SECONDS_PER_ROUND = 15, 2e-3

# Facts about the index that select each implementation. The last is true in the column "apart" only.
WAYS = {
    "lane by lane": Neighbors(run=1, gap=1),
    "in registers": Neighbors(run=default_width(), gap=1),
    "tested": None,
    "as vectors": Neighbors(run=1, gap=default_width()),
}


def times(run: int | str, *, of_exp: bool) -> dict[str, float]:
    """Return nanoseconds per row of each implementation that is valid for these runs."""
    index = indices(run)
    ways = {name: known for name, known in WAYS.items() if run == APART or name != "as vectors"}
    timers = {name: _timer(index, known, of_exp=of_exp) for name, known in ways.items()}
    rounds = time_in_turn(timers, rounds=ROUNDS, seconds_per_round=SECONDS_PER_ROUND)
    return {name: min(seconds) / ROWS * 1e9 for name, seconds in rounds.items()}


def indices(run: int | str) -> np.ndarray:
    """Return the group of each row, shape ``(ROWS,)``."""
    if run == APART:
        return (np.arange(ROWS) % (4 * default_width())).astype("int32")
    groups = max(1, ROWS // int(run))
    return np.sort(np.random.default_rng(0).integers(0, groups, ROWS)).astype("int32")


def scatter(n_groups: int, known: Neighbors | None, *, of_exp: bool) -> Program:
    """Return the program of the loop, which adds to an output without clearing it first."""
    i0 = Index(0)
    index = Buffer("i", "int32", (ROWS,), Role.INPUT)
    x = Buffer("x", "float64", (ROWS,), Role.INPUT)
    y = Buffer("y", "float64", (n_groups,), Role.OUTPUT)
    value = Load(x, (i0,))
    added = Compute(ps.exp, (value,), "float64") if of_exp else value
    body = Accumulate(y, (Load(index, (i0,)),), ps.add, added, known)
    return Program((index, x), (y,), (), (), (Loop((ROWS,), (body,)),))


def _timer(index: np.ndarray, known: Neighbors | None, *, of_exp: bool) -> Timer:
    kernel = compile_native(scatter(int(index.max()) + 1, known, of_exp=of_exp))
    x, y = np.random.default_rng(1).uniform(-1, 1, ROWS), np.zeros(index.max() + 1)
    arguments = kernel.arguments([index, x], [y])

    def repeat(n: int) -> None:
        for _ in range(n):
            kernel.run(arguments)

    return timed(repeat, x, y)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no option: the command has none."""


def tables(arguments: argparse.Namespace) -> Iterator[Table]:
    """Yield a table of nanoseconds per row for each loop."""
    for of in ("x", "exp(x)"):
        table = Table("way", title=f"ns per row, y\\[i] += {of}, {machine()['cpu']}")
        columns = []
        for run in track((*RUNS, APART), f"measuring {of}"):
            table.add_column(str(run), justify="right")
            columns.append(times(run, of_exp=of == "exp(x)"))
        for way in WAYS:
            table.add_row(
                way, *(f"{by_way[way]:.2f}" if way in by_way else "" for by_way in columns)
            )
        yield table
