"""The table of tests that ``make test`` leaves out names existing tests and parameters."""

import re

import pytest

from tests import slices
from tests.conftest import REPOSITORY


class Item:
    """Stand-in for an item of pytest."""

    def __init__(self, nodeid, marks=()):
        self.nodeid, self.marks = nodeid, [*marks]

    def add_marker(self, mark):
        self.marks.append(mark.name)

    def get_closest_marker(self, name):
        return name if name in self.marks else None


@pytest.fixture
def table(monkeypatch):
    table = {
        "slow": ["a.py::C::test"],
        "most_cases": {"a": 3, "a/b.py": 2, "a/b.py::test_one": 1},
        "without": {"b.py": ["long", "x"]},
    }
    monkeypatch.setattr(slices, "TABLE", table)


def slow(items):
    """Return the names of items that the table marks."""
    slices.mark_slow(items)
    assert all(item.marks in ([], ["slow"]) for item in items)
    return [item.nodeid for item in items if item.marks]


@pytest.mark.usefixtures("table")
def test_left_out_tests_are_marked():
    names = ["b.py::test[long]", "b.py::Class::test[y-x]", "a.py::C::test"]
    others = ["b.py::test[y]", "c.py::test[long]", "a.py::test", "a.py::C::test_more"]
    assert slow([Item(name) for name in names + others]) == names


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("test", "run"),
    [
        ("a/c.py::test", "036"),
        ("a/c/d.py::test", "036"),
        ("a/b.py::test", "04"),
        ("a/b.py::test_one_more", "04"),
        ("a/b.py::test_one", "0"),
        ("ab.py::test", "01234567"),
    ],
)
def test_most_cases_are_those_of_the_longest_name_and_spaced_evenly(test, run):
    left_out = slow([Item(f"{test}[{k}]") for k in range(8)])
    assert left_out == [f"{test}[{k}]" for k in range(8) if str(k) not in run]


@pytest.mark.usefixtures("table")
def test_cases_that_are_slow_anyway_do_not_count():
    items = [Item("a/b.py::test_one[0]", ["slow"]), Item("a/b.py::test_one[1]")]
    assert slow(items) == ["a/b.py::test_one[0]"]


@pytest.mark.usefixtures("table")
def test_case_selected_alone_runs():
    assert not slow([Item("a/b.py::test_one[q]")])


@pytest.mark.parametrize("place", [*slices.TABLE["slow"], *slices.TABLE["most_cases"]])
def test_rows_name_tests_files_or_folders(place):
    file, *_, name = place.split("::") if "::" in place else (place, "")
    path = REPOSITORY / file
    assert path.exists()
    if name:
        assert re.search(rf"^ *def {name}\(", path.read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("file", slices.TABLE["without"])
def test_rows_name_parameters(file):
    path = REPOSITORY / file
    names = "\n".join(each.read_text() for each in path.parent.glob("*.py"))
    for parameter in slices.TABLE["without"][file]:
        is_name = parameter in names or (REPOSITORY / parameter).is_file()
        assert is_name or re.fullmatch(r"\d+(x\d+)*", parameter)
