"""From the call to the first evaluation: ``python -m benchmarks.gallery.compile_time NAME ... [--rounds N]``.

Each side of a model compiles it in a process of its own, which has imported everything and made the model before the clock starts; the clock stops
when logp and gradient at the initial point are there, since JAX makes its machine code with the first evaluation. PyTensor's and our caches are empty,
but for "again", which finds what the side before it has left. Medians over rounds, in seconds by the clock, on one core.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.fresh_process import environment
from benchmarks.gallery import MODELS
from benchmarks.runner import ROOT
from pymc_fastlogp.benchmarking.pairing import pinned

SIDES = ("compile_pymc_model", "again", "JAX")


def first_evaluation(name: str, side: str) -> float:
    """Return the seconds of one side, in this process."""
    import nutpie

    import pymc_fastlogp

    model = MODELS[name].make()
    begin = time.perf_counter()
    if side == "JAX":
        with pymc_fastlogp.disabled():
            compiled = nutpie.compile_pymc_model(model, backend="jax", freeze_model=True)
            logp, gradient = compiled._make_logp_func()(compiled._make_initial_points(0))
    else:
        compiled = pymc_fastlogp.compile_pymc_model(model)
        logp, gradient = compiled.logp_dlogp(compiled.initial_point_func(0))
    seconds = time.perf_counter() - begin
    assert np.isfinite(logp)
    assert np.isfinite(gradient).all()
    return seconds


def measured(name: str, side: str, folder: str) -> float:
    """Return the seconds of one side, in a process with its caches in a folder."""
    command = [sys.executable, "-W", "ignore", "-m", __spec__.name, name, "--side", side]
    own = environment(folder, one_core=True)
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def round_of(name: str) -> dict[str, float]:
    """Return the seconds of all sides, each once."""
    with tempfile.TemporaryDirectory() as ours:
        folders = dict.fromkeys(("compile_pymc_model", "again"), ours)
        found = {}
        for side in SIDES:
            with tempfile.TemporaryDirectory() as own:
                found[side] = measured(name, side, folders.get(side, own))
    return found


def main() -> None:
    """Measure models and print a table."""
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}")
    parser.add_argument("names", nargs="+", choices=MODELS, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        print(json.dumps(first_evaluation(arguments.names[0], arguments.side)))
        return
    table = Table("model", *SIDES, "JAX / compile_pymc_model")
    with pinned():
        for name in arguments.names:
            rounds = [round_of(name) for _ in range(arguments.rounds)]
            seconds = {side: median(each[side] for each in rounds) for side in SIDES}
            ratio = seconds["JAX"] / seconds["compile_pymc_model"]
            table.add_row(name, *(f"{seconds[side]:.3g}" for side in SIDES), f"{ratio:.2f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
