"""Differences of two runs of the same tests, and the table of known ones with their reasons."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.upstream.outcomes import Outcome

TABLE = Path(__file__).with_suffix(".toml")
MISSING = Outcome("missing")


@dataclass(frozen=True)
class Known:
    """A row of the table: a test, all whose parameters are meant, and why the plugin changes its outcome."""

    package: str
    test: str
    reason: str

    def covers(self, package: str, test: str) -> bool:
        """Return whether it is about a test."""
        return package == self.package and test.partition("[")[0] == self.test


@dataclass(frozen=True)
class Difference:
    """A test whose outcome is another with the plugin."""

    test: str
    off: Outcome
    on: Outcome

    def __str__(self) -> str:
        why = self.on.why or self.off.why
        return f"{self.test}: {self.off.state} off, {self.on.state} on" + (why and f" ({why})")


def known_differences() -> tuple[Known, ...]:
    """Return the table."""
    return tuple(Known(**row) for row in tomllib.loads(TABLE.read_text())["difference"])


def differences(off: Mapping[str, Outcome], on: Mapping[str, Outcome]) -> list[Difference]:
    """Return the tests whose outcome, not its reason, differs; those that only one side has, too."""
    return [
        Difference(test, off.get(test, MISSING), on.get(test, MISSING))
        for test in sorted(off.keys() | on.keys())
        if off.get(test, MISSING).state != on.get(test, MISSING).state
    ]


def reason_for(package: str, test: str, table: Iterable[Known]) -> str | None:
    """Return why a test is known to differ, None if it is not."""
    return next((row.reason for row in table if row.covers(package, test)), None)


def outdated(
    package: str, compared: Iterable[str], differ: Iterable[Difference], table: Iterable[Known]
) -> list[Known]:
    """Return the rows whose tests were compared, and do not differ any more."""
    tests, names = list(compared), [difference.test for difference in differ]
    return [
        row
        for row in table
        if any(row.covers(package, test) for test in tests)
        and not any(row.covers(package, test) for test in names)
    ]
