"""From the call to the first draw of every model of the suite: ``python -m benchmarks.to_first_draw [--model NAME ...] [--missing]``.

For each side and model a process samples one draw of one chain, after one tuning step, with empty caches, and a second process with the caches of the
first; imports are not counted. The draw is part of the time, since JAX compiles at the first evaluation. A run of all models writes its JSON model by
model, so that ``--missing`` continues an interrupted run, and at the end the table of the docs.
"""

import argparse
import json
import tempfile
from typing import Any

from rich.progress import track

from benchmarks.first_draw import run
from benchmarks.first_draw_report import PAGE, STATES
from benchmarks.machine import context
from benchmarks.report import (
    MISSING,
    ROOT,
    Record,
    digits,
    machine_and_versions,
    markdown_table,
    write_table,
)
from benchmarks.suite import SUITE, case

RESULTS = ROOT / "benchmarks" / "results" / "to_first_draw.json"
MARKER = "table of the first draws"
SIDES = ("import", "sample", "nutpie-JAX")


def measure(name: str) -> Record:
    """Return the record of a model: the seconds of each side, cold and warm, without those of a side that fails."""
    seconds: dict[str, float] = {}
    for side in SIDES:
        with tempfile.TemporaryDirectory() as folder:
            for state in STATES:
                parts = run(side, name, 1, folder=folder)
                if parts is not None:
                    seconds[f"{side}, {state}"] = parts["compile"] + parts["sampling"]
    return {"name": name, "title": case(name).title, "seconds": seconds}


def table(results: dict[str, Any]) -> str:
    """Return the table of the docs."""
    header = ["model", *(f"{side}, {state}, s" for state in STATES for side in SIDES)]
    header += [f"sample / import, {state}" for state in STATES]
    rows = [_row(record) for record in results["models"]]
    caption = f"Measured on {results['date']}, one run, on {machine_and_versions(results)}."
    return f"{markdown_table(header, rows)}\n\n{caption}"


def _row(record: Record) -> list[str]:
    seconds = record["seconds"]
    cells = [seconds.get(f"{side}, {state}") for state in STATES for side in SIDES]
    cells += [seconds[f"sample, {state}"] / seconds[f"import, {state}"] for state in STATES]
    return [record["title"], *(MISSING if x is None else digits(x) for x in cells)]


def main() -> None:
    """Measure, print, and publish a run of all models."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.to_first_draw", description=__doc__)
    parser.add_argument("--model", nargs="+", help="only these; prints the table, writes no file")
    parser.add_argument("--report", action="store_true", help="only publish the JSON again")
    parser.add_argument("--missing", action="store_true", help="only models without a result")
    arguments = parser.parse_args()
    if arguments.report:
        publish(json.loads(RESULTS.read_text()))
        return
    names = arguments.model or [x.name for x in SUITE]
    kept = json.loads(RESULTS.read_text())["models"] if arguments.missing else []
    records = {x["name"]: x for x in kept if x["name"] in names}
    with tempfile.TemporaryDirectory() as folder:  # the first process writes bytecode
        run("sample", names[0], 1, folder=folder)
    results = {**context(), "models": [*records.values()]}
    for name in track([x for x in names if x not in records], "fresh processes"):
        records[name] = measure(name)
        results["models"] = [records[x] for x in names if x in records]
        if not arguments.model:
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))
    if not arguments.model:
        publish(results)


def publish(results: dict[str, Any]) -> None:
    """Write the table of the docs."""
    write_table(PAGE, table(results), MARKER)


if __name__ == "__main__":
    main()
