"""Counts of the checks on ``docs/reliability.md``: the commands write them into a JSON, from which the table is made.

``make RECORD=1 fuzz`` and the like record a run. ``python -m tests.counts [XML]`` records the XML that pytest wrote for the whole suite, and writes the table.
"""

import json
import sys
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from benchmarks.machine import versions
from benchmarks.report import ROOT, markdown_table, write_table

RESULTS = ROOT / "benchmarks" / "results" / "checks.json"
PAGE = ROOT / "docs" / "reliability.md"
MARKER = "table of counts"
SHOWN = ("python", "pymc", "pytensor", "nutpie", "commit")


class Counts(NamedTuple):
    """Number of cases of a check by outcome.

    Attributes
    ----------
    cases : int
        Models, graphs or tests.
    skipped : int
        Cases that upstream refuses, or that pytest skips or expects to fail.
    explained : int
        Cases that differ for a reason that is listed.
    failed : int
        Cases that differ, fail or raise.
    """

    cases: int
    skipped: int
    explained: int
    failed: int


def record(check: str, command: str, counts: Counts) -> None:
    """Write the counts of a check into the JSON, and the table into the page."""
    results = json.loads(RESULTS.read_text())
    found = versions()
    results[check] = {
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {name: found[name] for name in SHOWN},
        "counts": counts._asdict(),
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    publish()


def table() -> str:
    """Return a row for each check."""
    rows = [
        [
            check,
            f"`{run['command']}`",
            *(f"{n:,}".replace(",", " ") for n in run["counts"].values()),
            f"{run['date']}, {run['versions']['commit']}",
        ]
        for check, run in json.loads(RESULTS.read_text()).items()
    ]
    return markdown_table(["check", "command", *Counts._fields, "date and commit"], rows)


def publish() -> None:
    """Write the table into the page."""
    write_table(PAGE, table(), MARKER)


def suite(path: Path) -> Counts:
    """Return the counts of the XML that pytest writes."""
    [found] = ET.parse(path).getroot().iter("testsuite")
    tests, skipped, *failed = (
        int(found.attrib[name]) for name in ("tests", "skipped", "failures", "errors")
    )
    return Counts(tests, skipped, 0, sum(failed))


def main() -> None:
    """Record the suite's XML if it is given, and write the table."""
    if sys.argv[1:]:
        record("test suite", "make test-all", suite(Path(sys.argv[1])))
    publish()


if __name__ == "__main__":
    main()
