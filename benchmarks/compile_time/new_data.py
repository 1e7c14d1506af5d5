"""Cost of compiling a model again with other data.

Processor seconds of ``compile_pymc_model``, frozen and not, each in a process with an empty folder of models and machine code: the first data set,
data sets of equal length, and data sets of another length, all drawn from the rows of the first with replacement. Medians of the latter two.
"""

import argparse
from collections.abc import Iterator
from statistics import median

import numpy as np
import pymc as pm
from rich.progress import track
from rich.table import Table

from benchmarks.compile_time.stages import compile_seconds, compile_small
from benchmarks.fresh_process import call
from benchmarks.suite import case

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")


def tables(arguments: argparse.Namespace) -> Iterator[Table]:
    """Yield a table with a row a model."""
    table = Table("model", *[f"{x}, {y}" for x in ("frozen", "shared") for y in COLUMNS])
    for name in track(arguments.models):
        row = [x for freeze in (True, False) for x in call(measure, name, freeze, kept="")]
        table.add_row(name, *("" if x is None else f"{x:.2g}" for x in row))
    yield table


def measure(name: str, freeze: bool) -> list[float | None]:
    """Return the seconds of the first data set, of others, and of others of another length; None if dimensions fix the length."""
    make = case(name).make
    compile_small()

    def again(share: float) -> float:
        models = (drawn_again(make(), k + 1, share) for k in range(AGAIN))
        return median(compile_seconds(model, freeze_model=freeze) for model in models)

    first = compile_seconds(make(), freeze_model=freeze)
    return [first, again(1.0), None if name == "eight_schools" else again(1.05)]


def drawn_again(model: pm.Model, seed: int, share: float = 1.0) -> pm.Model:
    """Give a model data of rows drawn with replacement, as many as there were or a share of these."""
    rng = np.random.default_rng(seed)
    data = {x.name: x.get_value() for x in model.data_vars}
    longest = max(len(x) for x in data.values())
    rows = rng.integers(longest, size=round(share * longest))
    with model:
        pm.set_data({name: x[rows] for name, x in data.items() if len(x) == longest})
    return model
