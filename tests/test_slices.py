"""The table of tests that ``make test`` leaves out names existing tests and parameters."""

import re

import pytest

from tests import slices
from tests.conftest import REPOSITORY


class Item:
    """Stand-in for an item of pytest."""

    def __init__(self, nodeid):
        self.nodeid, self.marks = nodeid, []

    def add_marker(self, mark):
        self.marks.append(mark.name)


@pytest.fixture
def table(monkeypatch):
    table = {
        "slow": ["a.py::C::test"],
        "one_in": {"a.py::test_one": 2},
        "without": {"b.py": ["long", "x"]},
    }
    monkeypatch.setattr(slices, "TABLE", table)


@pytest.mark.usefixtures("table")
def test_left_out_tests_are_marked():
    names = [f"a.py::test_one[{k}]" for k in "pqrst"]
    names += ["a.py::test_two[p]", "a.py::test_two[q]", "a.py::test_one_more[p]"]
    names += ["b.py::test[long]", "b.py::Class::test[y-x]", "b.py::test[y]", "c.py::test[long]"]
    names += ["a.py::C::test", "a.py::test"]
    items = [Item(name) for name in names]
    slices.mark_slow(items)
    slow = [item.nodeid for item in items if item.marks == ["slow"]]
    assert slow == [*names[1:5:2], "b.py::test[long]", "b.py::Class::test[y-x]", "a.py::C::test"]
    assert all(item.marks in ([], ["slow"]) for item in items)


@pytest.mark.usefixtures("table")
def test_case_selected_alone_runs():
    item = Item("a.py::test_one[q]")
    slices.mark_slow([item])
    assert not item.marks


@pytest.mark.parametrize("test", [*slices.TABLE["slow"], *slices.TABLE["one_in"]])
def test_rows_name_tests(test):
    file, *_, name = test.split("::")
    assert re.search(rf"^ *def {name}\(", (REPOSITORY / file).read_text(), flags=re.MULTILINE)
    assert slices.TABLE["one_in"].get(test, 2) > 1


@pytest.mark.parametrize("file", slices.TABLE["without"])
def test_rows_name_parameters(file):
    path = REPOSITORY / file
    names = "\n".join(each.read_text() for each in path.parent.glob("*.py"))
    for parameter in slices.TABLE["without"][file]:
        is_name = parameter in names or (REPOSITORY / parameter).is_file()
        assert is_name or re.fullmatch(r"\d+(x\d+)*", parameter)
