"""Effective samples per second of the whole wait: ``python -m benchmarks.throughput [--model NAME ...] [--side NAME ...] [--seed N ...]``.

A side is the model as written, the model written the other way by hand, ``sample(..., reparametrize=True)``, or another way of nutpie and pymc-extras to adapt, see
:mod:`benchmarks.throughput_sides`. Each side is measured in a process of its own, without models or kernels on disk, that samples once a seed. Results lie in a folder, one
file for each model, side and seed, and are not measured again, so that a run can be interrupted and continued, also in several environments.

``--publish`` makes the JSON and the tables of docs/reparametrize.md of the results in the folder, without measuring; ``--table`` makes the tables of the JSON.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from benchmarks import other_ways
from benchmarks import throughput_report as report
from benchmarks.fresh_process import environment
from benchmarks.throughput_models import MODELS
from benchmarks.throughput_sides import SIDES, USUAL

FOLDER = Path(gettempdir()) / "pymc_fastlogp_throughput"
# Limit of a process, in seconds a seed.
PATIENCE = 300


def main() -> None:
    """Measure missing results, and print the tables."""
    arguments = _parse()
    if arguments.table:
        report.publish(json.loads(report.RESULTS.read_text()))
        return
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    if not arguments.publish:
        for name in arguments.model or MODELS:
            for side in arguments.side:
                if _why_not(name, side) is None:
                    _measure(name, side, arguments, folder)
                else:
                    print(f"{name} {side}: {_why_not(name, side)}", file=sys.stderr)
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*.*.*.json"))]
    results = report.results_of(runs, list(MODELS))
    if arguments.publish:
        report.RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        report.publish(results)
    print(report.tables(results))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput")
    parser.add_argument("--model", nargs="+", action="extend", default=[], choices=MODELS)
    parser.add_argument("--side", nargs="+", default=USUAL, choices=SIDES)
    parser.add_argument("--seed", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds a seed")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("--table", action="store_true")
    return parser.parse_args()


def _why_not(name: str, side: str) -> str | None:
    """Return why a side is left out, None if it is not."""
    if not SIDES[side].is_installed:
        return f"{SIDES[side].needs} is not installed"
    if side == "other" and not hasattr(other_ways, MODELS[name].module):
        return "there is no other way"
    return None


def _measure(name: str, side: str, arguments: argparse.Namespace, folder: Path) -> None:
    """Measure the seeds that have no file, and write one for each."""
    paths = {seed: folder / f"{name}.{side}.{seed}.json" for seed in arguments.seed}
    missing = [seed for seed, path in paths.items() if not path.exists()]
    if not missing:
        return
    found, failure = _run(name, side, missing, arguments.patience * len(missing))
    for seed in missing:
        run = found.get(seed, {"model": name, "side": side, "seed": seed, "failure": failure})
        paths[seed].write_text(json.dumps(run))
        print(report.line(run), file=sys.stderr, flush=True)


def _run(
    name: str, side: str, seeds: list[int], patience: float
) -> tuple[dict[int, dict[str, Any]], str]:
    """Return the results of a process by seed, and the reason why other seeds have none."""
    command = [sys.executable, "-m", "benchmarks.throughput_child", name, side, *map(str, seeds)]
    # PyTensor's own cache stays: it has the machine code of functions that all models share.
    with TemporaryDirectory() as cache:
        process = subprocess.Popen(
            command,
            env=environment(FOLDER, kept=cache),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            output, errors = process.communicate(timeout=patience)
            failure = errors.strip().rpartition("\n")[2]
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            failure = f"more than {patience:.0f} s"
    runs = [json.loads(x) for x in output.splitlines() if x.startswith("{")]
    return {run["seed"]: run for run in runs}, failure


if __name__ == "__main__":
    main()
