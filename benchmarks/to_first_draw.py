"""From the call to the first draw of every model of the suite: ``python -m benchmarks.to_first_draw [--model NAME ...] [--missing]``.

For each side and model a process samples one draw of one chain, after one of warm-up, with empty caches, and a second one with what the first has left;
imports are not counted. Draws are part of what is timed since JAX makes its machine code with the first evaluation. A run of all
models writes its JSON model by model, so that one that was interrupted goes on with ``--missing``, and at the end the table of the docs.
"""

import argparse
import json
import tempfile
from datetime import UTC, datetime
from typing import Any

from rich.progress import track

from benchmarks.first_draw import run
from benchmarks.first_draw_report import PAGE, STATES
from benchmarks.machine import machine, versions
from benchmarks.report import MISSING, ROOT, Record, digits, insert_table, machine_and_versions
from benchmarks.suite import SUITE, case

RESULTS = ROOT / "benchmarks" / "results" / "to_first_draw.json"
MARKER = "table of the first draws"
SIDES = ("import", "sample", "JAX")
DRAWS = "1"


def measure(name: str) -> Record:
    """Return the record of a model: the seconds of each side, cold and warm; those of a side that fails are left out."""
    seconds: dict[str, float] = {}
    for side in SIDES:
        with tempfile.TemporaryDirectory() as folder:
            for state in STATES:
                try:
                    parts = run("--side", side, "--model", name, "--draws", DRAWS, folder=folder)
                except Exception as error:  # JAX has no rule for some Ops
                    print(f"{name}, {side}: {error}")
                    break
                seconds[f"{side}, {state}"] = parts["compile"] + parts["sampling"]
    return {"name": name, "title": case(name).title, "seconds": seconds}


def table(results: dict[str, Any]) -> str:
    """Return the table of the docs."""
    header = ["model", *(f"{side}, {state}, s" for state in STATES for side in SIDES)]
    header += [f"sample / import, {state}" for state in STATES]
    rows = [_row(record) for record in results["models"]]
    rule = ["---", *["---:"] * (len(header) - 1)]
    lines = "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))
    cores = "a core of its own, other programs on the other one, of"
    return f"{lines}\n\nMeasured on {results['date']}, one run, {cores} {machine_and_versions(results)}."


def _row(record: Record) -> list[str]:
    seconds = record["seconds"]
    cells = [seconds.get(f"{side}, {state}") for state in STATES for side in SIDES]
    cells += [seconds[f"sample, {state}"] / seconds[f"import, {state}"] for state in STATES]
    return [record["title"], *(MISSING if x is None else digits(x) for x in cells)]


def main() -> None:
    """Measure, print and publish."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.to_first_draw", description=__doc__)
    parser.add_argument(
        "--model", nargs="*", help="only these; prints the table and writes no file"
    )
    parser.add_argument("--report", action="store_true", help="only publish the JSON once more")
    parser.add_argument("--missing", action="store_true", help="only models without a result")
    arguments = parser.parse_args()
    if arguments.report:
        publish(json.loads(RESULTS.read_text()))
        return
    names = arguments.model or [x.name for x in SUITE]
    kept = json.loads(RESULTS.read_text())["models"] if arguments.missing else []
    records = {x["name"]: x for x in kept if x["name"] in names}
    with tempfile.TemporaryDirectory() as folder:  # the first process writes bytecode
        run("--side", "sample", "--model", names[0], "--draws", DRAWS, folder=folder)
    results = _results(list(records.values()))
    for name in track([x for x in names if x not in records], "fresh processes"):
        records[name] = measure(name)
        results = _results([records[x] for x in names if x in records])
        if not arguments.model:
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))
    if not arguments.model:
        publish(results)


def _results(records: list[Record]) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "models": records,
    }


def publish(results: dict[str, Any]) -> None:
    """Write the table of the docs."""
    PAGE.write_text(insert_table(PAGE.read_text(), table(results), MARKER))


if __name__ == "__main__":
    main()
