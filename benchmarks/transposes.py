"""Gain of reading a matrix and its transpose from one array: ``python -m benchmarks.transposes [NAME ...]``.

Compiles models of the suite and of the gallery with one array for both wherever there are two, whatever their size, and with two arrays, and times both in turn on one core. Above 1 one
array is faster. The limits of :mod:`pymc_fastlogp.kernel.graph.arguments` leave out those where it is not.
"""

import sys
from unittest import mock

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine
from benchmarks.matrix_bounds import model_of
from pymc_fastlogp.benchmarking.native import LogpCallback
from pymc_fastlogp.benchmarking.pairing import pinned, time_in_turn
from pymc_fastlogp.benchmarking.run import compile_side, legal_points
from pymc_fastlogp.kernel.graph import arguments

ROUNDS, SECONDS_PER_ROUND = 15, 0.03
NONE, ALL = 2**60, 0
NAMES = (
    "gp_hsgp_birthdays",
    "hsgp_counts",
    "dense_logistic",
    "horseshoe_logistic_regression",
    "horseshoe_regression",
    "hsgp",
    "contraception",
    "epilepsy",
)


def compiled(name: str, least: int) -> LogpCallback:
    """Return a model that shares arrays of at least so many bytes, and with at least so many rows and columns."""
    with (
        mock.patch.object(arguments, "LEAST_BYTES", least),
        mock.patch.object(arguments, "LEAST_COLUMNS", least),
    ):
        return compile_side(model_of(name)(), "on")


def main(names: list[str]) -> None:
    """Print a row for each model."""
    columns = ("model", "two arrays, µs", "one, µs", "two : one", "quartiles", "one again")
    table = Table(*columns, title=machine()["cpu"])
    with pinned():
        for name in names or NAMES:
            sides = {
                side: compiled(name, least)
                for side, least in (("two", NONE), ("one", ALL), ("again", ALL))
            }
            points = legal_points(sides["one"], seed=0)
            timers = {side: callback.timer(points) for side, callback in sides.items()}
            seconds = time_in_turn(timers, rounds=ROUNDS, seconds_per_round=SECONDS_PER_ROUND)
            two, one, again = (np.array(seconds[side]) for side in ("two", "one", "again"))
            low, middle, high = np.percentile(two / one, (25, 50, 75))
            times = (f"{1e6 * np.median(side):.3g}" for side in (two, one))
            noise = f"{np.median(again / one):.2f}"
            table.add_row(name, *times, f"{middle:.2f}", f"{low:.2f} to {high:.2f}", noise)
    Console(width=120).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
