"""Selection of the tests of ``make test``: the table ``slices.toml``, and the number of examples of a property."""

import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import settings

TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


def mark_slow(items: Iterable[pytest.Item]) -> None:
    """Mark as slow what the table leaves out. A case that is asked for by its whole name is the only one of its test, and runs."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        test, _, parameter = item.nodeid.partition("[")
        left_out = TABLE["without"].get(item.nodeid.partition("::")[0], ())
        parameters = parameter.removesuffix("]").split("-")
        if test in TABLE["slow"] or not set(left_out).isdisjoint(parameters):
            item.add_marker(pytest.mark.slow)
        elif item.get_closest_marker("slow") is None:
            cases.setdefault(test, []).append(item)
    for test, of_test in cases.items():
        n = len(of_test)
        most = min(n, _most_cases(test, n))
        for k, item in enumerate(of_test):
            if k * most % n >= most:
                item.add_marker(pytest.mark.slow)


def _most_cases(test: str, n: int) -> int:
    """Return how many of the ``n`` cases of a test run at most."""
    places = [x for x in TABLE["most_cases"] if f"{test}::".startswith((f"{x}/", f"{x}::"))]
    return TABLE["most_cases"][max(places, key=len)] if places else n


def examples[T](few: T, all_: T) -> T:
    """Return the examples of ``make test``, or of ``make test-all``, which takes others each time: their number, or a list."""
    return few if settings.default.derandomize else all_
