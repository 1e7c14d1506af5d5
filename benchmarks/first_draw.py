"""The user's wait, in fresh processes: ``python -m benchmarks.first_draw [--model NAME ...] [--rounds N]``.

For each side and model a process imports PyMC, the plugin where it is on, and nutpie, makes the model, and samples 4 chains of 1000 + 1000 draws
on two cores. The first process of a side finds empty caches on disk, the second one those that the first has left. Last, logp and
gradient of the model are timed off against on. Figures are medians over rounds, each with empty caches again, in seconds by the clock. All sides import
nutpie, and with it ArviZ, matplotlib and JAX.

A run of all models writes its JSON, the tables of README and docs, and the picture; see :mod:`benchmarks.first_draw_report`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from datetime import UTC, datetime
from statistics import median
from typing import Any

from rich.progress import track

from benchmarks import first_draw_report as report
from benchmarks.machine import machine, versions
from benchmarks.suite import case

SETTINGS = {"draws": 1000, "tune": 1000, "chains": 4, "cores": 2, "random_seed": 1}


def sample(arguments: argparse.Namespace) -> dict[str, float]:
    """Import, make the model, sample; return the seconds of each part."""
    start = time.perf_counter()
    import pymc as pm

    if arguments.side in report.WITH_PLUGIN:
        import pymc_fastlogp
    import nutpie  # noqa: F401

    imported = time.perf_counter()
    model = case(arguments.model[0]).make()
    options = {"model": model, "progressbar": False, "quiet": True, **SETTINGS}
    begin = time.perf_counter()
    match arguments.side:
        case "sample":
            idata = pymc_fastlogp.sample(**options)
        case "JAX":
            idata = pm.sample(**options, nuts_sampler="nutpie", compile_kwargs={"backend": "jax"})
        case _:
            idata = pm.sample(**options, nuts_sampler="nutpie")
    call = time.perf_counter() - begin
    sampling = idata["posterior"].attrs["sampling_time"]
    return {"imports": imported - start, "compile": call - sampling, "sampling": sampling}


def time_logp(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time logp and gradient, nutpie's callback with the plugin off against that of ``pymc_fastlogp.sample``."""
    from pymc_fastlogp import compile_pymc_model
    from pymc_fastlogp.benchmarking import BenchmarkResult
    from pymc_fastlogp.benchmarking.native import LogpCallback
    from pymc_fastlogp.benchmarking.pairing import pinned, time_in_turn
    from pymc_fastlogp.benchmarking.run import check_agreement, compile_side, legal_points

    make = case(arguments.model[0]).make
    off = compile_side(make(), "off")
    on = LogpCallback.from_compiled(compile_pymc_model(make()))
    points = legal_points(off, seed=0)
    check_agreement(on.evaluate, off.evaluate, points)
    timers = {"off": off.timer(points), "on": on.timer(points)}
    with pinned():
        seconds = time_in_turn(timers, rounds=21, seconds_per_round=0.05)
    return BenchmarkResult(n_dim=points.shape[1], seconds=seconds).to_dict()


def run(*options: str, folder: str) -> dict[str, Any]:
    """Run one child with a cache folder of its own, and return what it prints."""
    flags = f"{os.environ.get('PYTENSOR_FLAGS', '')},base_compiledir={folder}".lstrip(",")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.first_draw", "--child", *options],
        env=os.environ | {"PYTENSOR_FLAGS": flags},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def measure(name: str, rounds: int) -> dict[str, Any]:
    """Return the record of a model: the parts of each side's wait, cold and warm, and the time of logp."""
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for _ in range(rounds):
        for side in report.SIDES:
            with tempfile.TemporaryDirectory() as folder:
                for state in report.STATES:
                    parts = run("--side", side, "--model", name, folder=folder)
                    found[f"{side}, {state}"].append(parts)
    with tempfile.TemporaryDirectory() as folder:
        logp = run("--logp", "--model", name, folder=folder)
    return {
        "name": name,
        "title": case(name).title,
        "runs": {
            side: {part: median(run[part] for run in runs) for part in report.PARTS}
            for side, runs in found.items()
        },
        "logp": logp,
    }


def main() -> None:
    """Measure, print and publish, or be a child."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_draw", description=__doc__)
    parser.add_argument("--model", nargs="*", help="only these; prints tables and writes no file")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="only publish the JSON once more")
    for internal in ("--child", "--logp"):
        parser.add_argument(internal, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--side", choices=report.SIDES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps((time_logp if arguments.logp else sample)(arguments)))
        return
    if arguments.report:
        report.publish(json.loads(report.RESULTS.read_text()))
        return
    names = arguments.model or report.HEADLINES
    results = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "rounds": arguments.rounds,
        "models": [measure(name, arguments.rounds) for name in track(names, "fresh processes")],
    }
    print(report.tables(results))
    if not arguments.model:
        report.RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        report.publish(results)


if __name__ == "__main__":
    main()
