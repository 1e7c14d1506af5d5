"""Command line of the benchmarks: ``python -m benchmarks [--model NAME ...] [--quick]``."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import report
from benchmarks.machine import context
from benchmarks.runner import FULL, QUICK, Effort, failed, measure
from benchmarks.suite import SUITE, Case


def main() -> int:
    """Measure, print the table, write the JSON; after a full run README and plot as well."""
    arguments = _parse()
    cases = choose(arguments.model, arguments.quick)
    full = not arguments.quick and not arguments.model
    path = arguments.output / ("latest.json" if full else "partial.json")
    results = _measure_all(cases, QUICK if arguments.quick else FULL, path)

    console = Console()
    console.print(report.rich_tables(results))
    console.print(f"Written to {path}")
    if full:
        report.publish(results)
    _print_failures(console, results)
    return int(any(failed(record) for record in results["cases"]))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__)
    parser.add_argument(
        "--model", nargs="+", action="extend", default=[], metavar="NAME", help="only these models"
    )
    parser.add_argument("--quick", action="store_true", help="small models, fewer rounds")
    parser.add_argument(
        "--output", type=Path, default=report.RESULTS.parent, help="folder of the JSON"
    )
    return parser.parse_args()


def choose(names: list[str], quick: bool) -> list[Case]:
    """Return the cases to measure; exit with a message if a name is unknown."""
    known = [case.name for case in SUITE]
    unknown = sorted(set(names) - set(known))
    if unknown:
        sys.exit(f"No such model: {', '.join(unknown)}. There are: {', '.join(known)}.")
    if names:
        return [case for case in SUITE if case.name in names]
    return [case for case in SUITE if case.quick or not quick]


def _measure_all(cases: list[Case], effort: Effort, path: Path) -> dict[str, Any]:
    results: dict[str, Any] = {
        **context(),
        "cases": [],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(cases))
        for case in cases:

            def tell(step: str, name: str = case.name) -> None:
                progress.update(task, description=f"{name}: {step}")

            results["cases"].append(measure(case, effort, tell))
            progress.advance(task)
            # After each case, so that an interrupted run is not lost.
            path.write_text(json.dumps(results, indent=1))
    return results


def _print_failures(console: Console, results: dict[str, Any]) -> None:
    for record in results["cases"]:
        for step, error in record["failures"].items():
            console.print(f"{record['name']}, {step}: {error}", style="red", markup=False)


if __name__ == "__main__":
    sys.exit(main())
