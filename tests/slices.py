"""Selection of the tests of ``make test``: the table ``slices.toml``, and the number of examples of a property."""

import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import settings

TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


def mark_slow(items: Iterable[pytest.Item]) -> None:
    """Mark as slow what the table leaves out. Of many cases, one that is asked for by its whole name is the first, and runs."""
    seen = Counter[str]()
    for item in items:
        test, _, parameter = item.nodeid.partition("[")
        left_out = TABLE["without"].get(item.nodeid.partition("::")[0], ())
        parameters = parameter.removesuffix("]").split("-")
        is_left_out = test in TABLE["slow"] or not set(left_out).isdisjoint(parameters)
        if is_left_out or seen[test] % TABLE["one_in"].get(test, 1):
            item.add_marker(pytest.mark.slow)
        seen[test] += 1


def examples[T](few: T, all_: T) -> T:
    """Return the examples of ``make test``, or of ``make test-all``, which takes others each time: their number, or a list."""
    return few if settings.default.derandomize else all_
