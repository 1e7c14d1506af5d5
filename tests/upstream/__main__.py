"""``python -m tests.upstream [PATTERN ...] [--record]``: run upstream's tests off and on, and print what differs.

A pattern is the beginning of a package and a path, such as ``pymc`` or ``pytensor/tests/scan``. A difference that is not in
``differences.toml`` is an error, and so is a row of that table whose tests do not differ any more.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from tests.counts import Counts, record
from tests.upstream.differences import Known, differences, known_differences, outdated, reason_for
from tests.upstream.outcomes import REPOSITORY, Outcome, run_file
from tests.upstream.sources import PACKAGES, Package, fetch

FETCHED = REPOSITORY / "build" / "upstream"

# The variable that names a folder of checkouts.
CHECKOUTS = "UPSTREAM"


def main() -> int:
    """Return the number of differences without a reason and of reasons without a difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=__doc__)
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="pymc, nutpie/tests, ...")
    parser.add_argument("--record", action="store_true", help="write the counts into the docs")
    arguments = parser.parse_args()
    patterns = arguments.patterns
    checkouts = Path(os.environ[CHECKOUTS]) if os.environ.get(CHECKOUTS) else None
    table, wrong = known_differences(), 0
    for package in PACKAGES:
        if patterns and not any(x.partition("/")[0] == package.name for x in patterns):
            continue
        folder = fetch(package, FETCHED, checkouts)
        print(f"{package.name} {version(package.name)}, tests in {folder}", flush=True)
        total = Counts(0, 0, 0, 0)
        for path in sorted(folder.glob("tests/**/test_*.py")):
            file = str(path.relative_to(folder))
            named = f"{package.name}/{file}"
            if not patterns or any(named.startswith(pattern) for pattern in patterns):
                found = compare(package, folder, file, table)
                total = Counts(*map(sum, zip(total, found, strict=True)))
        wrong += total.failed
        if arguments.record and (not patterns or package.name in patterns):
            record(f"tests of {package.name}", f"make TESTS={package.name} test-upstream", total)
    print(f"{wrong} without an explanation")
    return int(wrong > 0)


def compare(package: Package, folder: Path, file: str, table: tuple[Known, ...]) -> Counts:
    """Run a file off and on, print the differences, and return their counts. Outdated rows of the table count as failed."""
    off = run_file(folder, file, plugin=False, flags=package.flags)
    on = run_file(folder, file, plugin=True, flags=package.flags)
    print(f"{file}: off {counted(off.outcomes)} in {off.seconds:.0f} s,", end=" ")
    print(f"on {counted(on.outcomes)} in {on.seconds:.0f} s", flush=True)
    found, n_new, n_outdated = differences(off.outcomes, on.outcomes), 0, 0
    for difference in found:
        reason = reason_for(package.name, difference.test, table)
        n_new += reason is None
        print(f"  {'known' if reason else 'NEW'}: {difference}", flush=True)
    for row in outdated(package.name, off.outcomes, found, table):
        n_outdated += 1
        print(f"  OUTDATED: {row.test} does not differ any more")
    skipped = sum(outcome.state == "skipped" for outcome in off.outcomes.values())
    n_tests = len(off.outcomes.keys() | on.outcomes.keys())
    return Counts(n_tests, skipped, len(found) - n_new, n_new + n_outdated)


def counted(outcomes: Mapping[str, Outcome]) -> str:
    """Return how many tests had which outcome."""
    states = Counter(outcome.state for outcome in outcomes.values())
    return ", ".join(f"{n} {state}" for state, n in sorted(states.items())) or "no tests"


if __name__ == "__main__":
    sys.exit(main())
