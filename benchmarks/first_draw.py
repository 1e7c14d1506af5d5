"""The user's wait, in fresh processes: ``python -m benchmarks.first_draw [--model NAME ...] [--side NAME ...] [--rounds N]``.

Each process imports the packages of a side, makes the model, and samples 4 chains of 1000 + 1000 draws on two cores. The first
process of a side starts with empty caches on disk ("cold"), the second one with the caches of the first ("warm"). JAX and Stan keep no
machine code on disk, so they have no second process. A run without our plugin is stopped after ``PATIENCE`` seconds, except "off". Last, logp
and gradient are timed off against ``sample``. Figures are medians over rounds of wall time in seconds. Bytecode is there, as pip leaves it.
Stan is stanli, which interprets Stan programs; its run ends with the same ``DataTree``.

A run of all models and sides writes its JSON, the tables of README and docs, and the picture; see :mod:`benchmarks.first_draw_report`.
"""

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from subprocess import TimeoutExpired

from rich.progress import track

from benchmarks import first_draw_child as child
from benchmarks import first_draw_report as report
from benchmarks.fresh_process import call
from benchmarks.machine import context
from benchmarks.suite import case

# Seconds after which a run by JAX or Stan is stopped.
PATIENCE = 75


def run(
    side: str, name: str, draws: int | None = None, *, folder: str, timeout: float | None = None
) -> report.Run | None:
    """Run a side in a fresh process with this cache folder, and return the seconds of its parts, None if the side fails."""
    try:
        return call(child.sample, side, name, draws, folder=folder, timeout=timeout)
    except TimeoutExpired:
        return {report.STOPPED: float(timeout or 0)}
    except RuntimeError as error:  # JAX lacks some Ops, and may not be installed
        print(f"{name}, {side}: {error}", file=sys.stderr)
        return None


def measure(
    name: str, sides: Iterable[str], rounds: int = 1, draws: int | None = None
) -> report.Record:
    """Return the record of a model: the parts of the wait by side and state, and the time of logp."""
    found: dict[str, list[report.Run]] = defaultdict(list)
    logp = None
    for number in range(rounds):
        for side in sides:
            timeout = PATIENCE if side in report.ONCE else None
            with tempfile.TemporaryDirectory() as folder:
                for state in report.states_of(side):
                    parts = run(side, name, draws, folder=folder, timeout=timeout)
                    if parts is not None:
                        found[f"{side}, {state}"].append(parts)
                if side == "off" and number == 0:  # with the caches that are there
                    logp = call(child.time_logp, name, folder=folder)
    runs = {key: _median(parts) for key, parts in found.items()}
    return {"name": name, "title": case(name).title, "runs": runs, "logp": logp}


def _median(runs: list[report.Run]) -> report.Run:
    stopped = [parts for parts in runs if report.STOPPED in parts]
    if stopped:
        return stopped[0]
    return {part: median(parts[part] for parts in runs) for part in report.PARTS}


def main() -> None:
    """Measure, print, and publish a full run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_draw", description=__doc__)
    parser.add_argument("--model", nargs="+", default=[*report.HEADLINES], metavar="NAME")
    parser.add_argument("--side", nargs="+", default=[*report.SIDES], choices=report.SIDES)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--draws", type=int, help="of one chain, for a fast look")
    parser.add_argument("--report", action="store_true", help="only publish the JSON again")
    arguments = parser.parse_args()
    if arguments.report:
        report.publish(json.loads(report.RESULTS.read_text()))
        return
    names = arguments.model
    with tempfile.TemporaryDirectory() as folder:  # the first process writes bytecode
        run("sample", names[0], 1, folder=folder)
    records = [
        measure(
            name,
            [side for side in arguments.side if side in report.sides_of(name)],
            arguments.rounds,
            arguments.draws,
        )
        for name in track(names, "fresh processes")
    ]
    results = {**context(), "rounds": arguments.rounds, "models": records}
    print(report.tables(results))
    is_full = {*names} == {*report.HEADLINES} and {*arguments.side} == {*report.SIDES}
    if is_full and not arguments.draws:
        report.RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        report.publish(results)


if __name__ == "__main__":
    main()
