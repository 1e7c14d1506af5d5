"""Cost of compiling a model again with other data: ``python -m benchmarks.new_data [MODEL ...]``.

Processor seconds of ``compile_pymc_model``, frozen and not, each in a process whose folder of models and of object code is empty at first: the first data
set, then others of equal length, then others of another length, each rows of the first drawn with replacement; medians of the latter two. Another model
is compiled before, so that all is imported.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from math import isnan, nan
from statistics import median
from time import process_time

import numpy as np
import pymc as pm
from rich.console import Console
from rich.table import Table

from benchmarks.fresh_process import environment
from benchmarks.suite import case
from pymc_fastlogp import compile_pymc_model

MODELS = (
    "eight_schools",
    "radon",
    "contraception",
    "negative_binomial",
    "mrp_10k",
    "lkj_slopes",
)
COLUMNS = ("first", "again", "other length")
AGAIN = 5


def drawn_again(model: pm.Model, seed: int, share: float = 1.0) -> pm.Model:
    """Give a model data of rows drawn with replacement, as many as there were or a share of these."""
    rng = np.random.default_rng(seed)
    data = {x.name: x.get_value() for x in model.data_vars}
    longest = max(len(x) for x in data.values())
    rows = rng.integers(longest, size=round(share * longest))
    with model:
        pm.set_data({name: x[rows] for name, x in data.items() if len(x) == longest})
    return model


def seconds(model: pm.Model, *, freeze: bool) -> float:
    """Return the processor time of a compilation."""
    begin = process_time()
    compile_pymc_model(model, freeze_model=freeze)
    return process_time() - begin


def measured(name: str, *, freeze: bool) -> list[float]:
    """Return the seconds of the first data set, of others, and of others of another length; nan where dimensions fix the length."""
    make = case(name).make
    first = seconds(make(), freeze=freeze)
    again = [seconds(drawn_again(make(), k + 1), freeze=freeze) for k in range(AGAIN)]
    if name == "eight_schools":
        return [first, median(again), nan]
    longer = [seconds(drawn_again(make(), k + 1, 1.05), freeze=freeze) for k in range(AGAIN)]
    return [first, median(again), median(longer)]


def in_process(name: str, *, freeze: bool) -> list[float]:
    """Return the same from a process of its own with an empty cache."""
    side = "frozen" if freeze else "shared"
    command = [sys.executable, "-m", "benchmarks.new_data", name, "--side", side]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, env=environment(folder, kept=""), check=True, stdout=subprocess.PIPE
        )
    return json.loads(done.stdout)


def main(names: list[str], side: str | None) -> None:
    """Measure models and print a table, or one side of one model and print the numbers."""
    if side is not None:
        compile_pymc_model(case("sleepstudy").make(), freeze_model=side == "frozen")
        print(json.dumps(measured(names[0], freeze=side == "frozen")))
        return
    table = Table("model", *[f"{x}, {y}" for x in ("frozen", "shared") for y in COLUMNS])
    for name in names:
        row = [x for freeze in (True, False) for x in in_process(name, freeze=freeze)]
        table.add_row(name, *("" if isnan(x) else f"{x:.2g}" for x in row))
    Console(width=160).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--side", choices=("frozen", "shared"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    main(list(arguments.models), arguments.side)
