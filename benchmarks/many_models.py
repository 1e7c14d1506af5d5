"""Seconds for many fits of one model: ``python -m benchmarks.many_models [--fits N] [--side NAME ...]``.

The model is a regression of 500 rows in 20 groups, and each data set has other outcomes. Each side runs in a fresh process with empty caches on disk:

- ``pm.sample``: a loop of ``pm.set_data`` and ``pm.sample``, without this package;
- ``nutpie``: the model is compiled once, without this package; a loop of ``with_data`` and ``nutpie.sample``;
- ``sample``: a loop of ``pm.set_data`` and :func:`pymc_fastlogp.sample`;
- ``sample_many``: :func:`pymc_fastlogp.sample_many`, which keeps the draws of all variables but the data.

Loops run a few fits. The seconds of all fits are those of the first fit plus the mean of the others times their number. The result is written to the JSON, in which other sides stay as they are, and to the table of
the docs. ``--report`` writes the table again.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.fresh_process import call
from benchmarks.machine import context
from benchmarks.many_models_child import CHAINS, CORES, DRAWS, FITS, SIDES, TUNE, measure
from benchmarks.report import digits, machine_and_versions, markdown_table, write_table

RESULTS = Path(__file__).parent / "results" / "many_models.json"
PAGE = Path(__file__).parents[1] / "docs" / "howto" / "many_models.md"
MARKER = "table of many fits"


def total(ends: list[float], n: int = FITS) -> float:
    """Return the seconds of ``n`` fits, of which the first are measured."""
    each = (ends[-1] - ends[0]) / (len(ends) - 1)
    return ends[0] + (n - 1) * each


def page_table(results: dict[str, Any]) -> str:
    """Return the table of the docs."""
    ends = results["ends"]
    ours = total(ends["sample_many"])
    rows = []
    for side, measured in ends.items():
        seconds = total(measured)
        numbers = (digits(measured[0]), digits(seconds), digits(seconds / ours))
        rows.append([f"{side} ({len(measured)} fits measured)", *numbers])
    options = f"{CHAINS} chains of {DRAWS} draws after {TUNE} tuning draws"
    where = f"{options}. {CORES} cores of {machine_and_versions(results)}."
    header = ["way", "first fit, s", "1000 fits, s", "/ sample_many"]
    return f"{markdown_table(header, rows)}\n\n{where}"


def publish(results: dict[str, Any]) -> None:
    """Write the table of the docs."""
    write_table(PAGE, page_table(results), MARKER)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_models")
    parser.add_argument("--fits", type=int, help="fits of each side, in place of the default")
    parser.add_argument("--side", nargs="+", default=[*SIDES], choices=SIDES)
    parser.add_argument("--report", action="store_true", help="only write the table again")
    arguments = parser.parse_args()
    if arguments.report:
        publish(json.loads(RESULTS.read_text()))
        return
    ends = json.loads(RESULTS.read_text())["ends"] if RESULTS.exists() else {}
    for side in arguments.side:
        n = max(2, arguments.fits or SIDES[side][1])
        ends[side] = call(measure, side, n, one_core=True)
        print(f"{side}: first {ends[side][0]:.2f} s, {FITS} fits {total(ends[side]):.0f} s")
    ordered = {side: ends[side] for side in SIDES if side in ends}
    results = {**context(), "ends": ordered}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if ends.keys() == SIDES.keys():
        publish(results)


if __name__ == "__main__":
    main()
