"""``python -m pymc_fastlogp.dev new-rule`` writes a rule that works before it is filled in."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pymc_fastlogp.dev import main

ROOT = Path(__file__).parents[1]


@pytest.fixture
def checkout(tmp_path):
    """Copy what the skeletons need of the checkout."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "pymc_fastlogp", tmp_path / "pymc_fastlogp", ignore=ignored)
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=ignored)
    return tmp_path


@pytest.mark.parametrize("database", ["canonicalize", "stabilize", "specialize"])
def test_new_rule_is_a_row_of_the_table(checkout, database):
    arguments = ["new-rule", "ceil_of_floor", "--database", database]
    assert main(arguments, checkout) == 0
    namespace = {"__name__": "rules"}
    exec((checkout / "pymc_fastlogp" / "rules.py").read_text(), namespace)
    [rule] = [rule for rule in namespace["RULES"] if rule.name == "fastlogp_ceil_of_floor"]
    assert rule.function == "scalars.ceil_of_floor.local_ceil_of_floor"
    assert rule.database == database
    assert main(arguments, checkout) == 1


@pytest.mark.slow
def test_the_skeletons_pass_their_own_tests(checkout):
    assert main(["new-rule", "ceil_of_floor", "--database", "stabilize"], checkout) == 0
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    process = subprocess.run(
        [*command, "tests/rewrites/test_ceil_of_floor.py"],
        cwd=checkout,
        env={"PYTHONPATH": str(checkout), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ceil-of-floor"], "not a valid module name"),
        (["ceil_of_floor", "--room", "attic"], "There is no folder"),
        (["quotient_times_exp"], "already"),
    ],
)
def test_bad_arguments_are_refused_in_a_line(checkout, capsys, arguments, message):
    before = (checkout / "pymc_fastlogp" / "rules.py").read_text()
    assert main(["new-rule", *arguments], checkout) == 1
    assert message in capsys.readouterr().err
    assert (checkout / "pymc_fastlogp" / "rules.py").read_text() == before
