"""The user's wait, in fresh processes: ``python -m benchmarks.first_draw [--model NAME ...] [--rounds N]``.

For each side and model a process imports PyMC, the plugin where it is on, and nutpie, makes the model, and samples 4 chains of 1000 + 1000 draws
on two cores. The first process of a side finds empty caches on disk, the second one those that the first has left. Last, logp and
gradient of the model are timed off against on. Figures are medians over rounds, each with empty caches again, in seconds by the clock. Bytecode is there,
as pip leaves it. Stan is stanli, which interprets Stan programs; its run ends with the same ``DataTree``.

A run of all models writes its JSON, the tables of README and docs, and the picture; see :mod:`benchmarks.first_draw_report`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from datetime import UTC, datetime
from statistics import median
from typing import Any

from rich.progress import track

from benchmarks import first_draw_report as report
from benchmarks.fresh_process import environment
from benchmarks.machine import machine, versions
from benchmarks.suite import case


def run(*options: str, folder: str) -> dict[str, Any]:
    """Run one child with a cache folder of its own, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.first_draw_child", *options],
        env=environment(folder),
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
        for side in report.sides_of(name):
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
    arguments = parser.parse_args()
    if arguments.report:
        report.publish(json.loads(report.RESULTS.read_text()))
        return
    names = list(arguments.model or report.HEADLINES)
    with tempfile.TemporaryDirectory() as folder:  # the first process writes bytecode
        run("--side", "sample", "--model", names[0], folder=folder)
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
