"""The comparison of two runs of the same tests, on files of a few lines."""

from textwrap import dedent

import pytest

from tests.counts import Counts
from tests.upstream import __main__ as runner
from tests.upstream.differences import Known, differences, known_differences, outdated, reason_for
from tests.upstream.outcomes import Outcome, Run, outcomes_in, run_file
from tests.upstream.sources import PACKAGES

PASSED, FAILED = Outcome("passed"), Outcome("failed", "AssertionError")

ROW = Known("pymc", "tests.test_a::test_counts_ops", "counts Ops")


def test_only_other_outcomes_differ():
    off = {"same": PASSED, "worse": PASSED, "gone": PASSED, "both": Outcome("failed", "1")}
    on = {"same": PASSED, "worse": FAILED, "new": PASSED, "both": Outcome("failed", "2")}
    found = {x.test: (x.off.state, x.on.state) for x in differences(off, on)}
    assert found == {
        "gone": ("passed", "missing"),
        "new": ("missing", "passed"),
        "worse": ("passed", "failed"),
    }


@pytest.mark.parametrize(
    ("package", "test", "is_known"),
    [
        ("pymc", "tests.test_a::test_counts_ops", True),
        ("pymc", "tests.test_a::test_counts_ops[x-1]", True),
        ("pymc", "tests.test_a::test_counts_ops_too", False),
        ("nutpie", "tests.test_a::test_counts_ops", False),
    ],
)
def test_a_row_is_about_one_test_with_all_its_parameters(package, test, is_known):
    assert (reason_for(package, test, [ROW]) is not None) == is_known


@pytest.mark.parametrize(
    ("compared", "on", "expected"),
    [
        ({"tests.test_a::test_counts_ops[1]": PASSED}, PASSED, [ROW]),
        ({"tests.test_a::test_counts_ops[1]": PASSED}, FAILED, []),
        ({"tests.test_b::test_other": PASSED}, PASSED, []),
    ],
)
def test_a_row_is_outdated_where_its_test_ran_and_does_not_differ(compared, on, expected):
    found = differences(compared, dict.fromkeys(compared, on))
    assert outdated("pymc", compared, found, [ROW]) == expected


def test_outcomes_are_read_from_the_xml_of_pytest():
    xml = """
        <testsuites><testsuite>
        <testcase classname="tests.test_a" name="test_good"/>
        <testcase classname="tests.test_a" name="test_bad"><failure message="1 != 2&#10;more"/></testcase>
        <testcase classname="tests.test_a" name="test_left"><skipped message="no"/></testcase>
        <testcase classname="tests.test_a" name="test_teardown"/>
        <testcase classname="tests.test_a" name="test_teardown"><error message="open"/></testcase>
        <testcase classname="" name="tests.test_b"><error message="collection"/></testcase>
        </testsuite></testsuites>
    """
    assert outcomes_in(xml.strip()) == {
        "tests.test_a::test_good": PASSED,
        "tests.test_a::test_bad": Outcome("failed", "1 != 2"),
        "tests.test_a::test_left": Outcome("skipped", "no"),
        "tests.test_a::test_teardown": Outcome("error", "open"),
        "tests.test_b": Outcome("error", "collection"),
    }


def test_a_suite_runs_without_the_plugin_and_with_it(tmp_path):
    (tmp_path / "test_state.py").write_text(
        dedent(
            """
            import sys

            def test_is_off():
                assert "pymc_fastlogp" not in sys.modules

            def test_is_on():
                import pymc_fastlogp
                assert pymc_fastlogp.is_enabled()
                assert "pymc_fastlogp.testing" in sys.modules
            """
        )
    )
    off, on = (run_file(tmp_path, "test_state.py", plugin=plugin) for plugin in (False, True))
    found = {x.test: (x.off.state, x.on.state) for x in differences(off.outcomes, on.outcomes)}
    assert found == {
        "test_state::test_is_off": ("passed", "failed"),
        "test_state::test_is_on": ("failed", "passed"),
    }


def test_a_process_that_dies_is_an_outcome(tmp_path):
    (tmp_path / "test_death.py").write_text("import os\nos._exit(3)\n")
    run = run_file(tmp_path, "test_death.py", plugin=False)
    assert run.outcomes["test_death.py"].state == "crashed (3)"


def test_every_row_of_the_table_has_a_reason_and_a_package():
    rows = known_differences()
    assert rows
    assert {row.package for row in rows} <= {package.name for package in PACKAGES}
    assert all(row.reason for row in rows)
    assert len({(row.package, row.test) for row in rows}) == len(rows)


def test_differences_of_a_file_are_counted(monkeypatch, tmp_path):
    off = {"tests.test_a::test_counts_ops[1]": PASSED, "a": PASSED, "b": Outcome("skipped")}
    on = {"tests.test_a::test_counts_ops[1]": FAILED, "a": FAILED, "b": Outcome("skipped")}

    def run(folder, file, *, plugin, flags):
        return Run(on if plugin else off, seconds=0.0)

    monkeypatch.setattr(runner, "run_file", run)
    [pymc] = [package for package in PACKAGES if package.name == "pymc"]
    gone = Known("pymc", "a_test::that_does_not_differ", "outdated")
    counts = runner.compare(pymc, tmp_path, "tests/test_a.py", (ROW, gone))
    assert counts == Counts(cases=3, skipped=1, explained=1, failed=1)
