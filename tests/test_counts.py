"""The counts of the page on reliability are those that the commands have recorded."""

import json

import pytest

from benchmarks.report import insert_table
from tests import counts
from tests.counts import Counts


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(counts, "RESULTS", tmp_path / "checks.json")
    monkeypatch.setattr(counts, "PAGE", tmp_path / "page.md")
    counts.RESULTS.write_text("{}")
    counts.PAGE.write_text(f"<!-- {counts.MARKER}: begin -->\n<!-- {counts.MARKER}: end -->\n")


def test_page_shows_the_recorded_counts():
    text = counts.PAGE.read_text()
    assert insert_table(text, counts.table(), counts.MARKER) == text


@pytest.mark.usefixtures("elsewhere")
def test_a_second_record_replaces_the_first():
    counts.record("random models", "make N=5 SEED=0 fuzz", Counts(5, 0, 0, 5))
    counts.record("tests of nutpie", "make TESTS=nutpie test-upstream", Counts(7, 1, 1, 0))
    counts.record("random models", "make N=2000 SEED=9 fuzz", Counts(2000, 3, 0, 0))
    assert list(json.loads(counts.RESULTS.read_text())) == ["random models", "tests of nutpie"]
    assert "| random models | `make N=2000 SEED=9 fuzz` | 2 000 | 3 | 0 | 0 |" in counts.table()
    assert counts.table() in counts.PAGE.read_text()


def test_counts_of_a_suite_are_those_of_its_xml(tmp_path):
    xml = tmp_path / "tests.xml"
    xml.write_text(
        '<testsuites><testsuite name="pytest" tests="9" skipped="2" failures="1" errors="3"/></testsuites>'
    )
    assert counts.suite(xml) == Counts(cases=9, skipped=2, explained=0, failed=4)
