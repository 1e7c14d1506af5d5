"""``python -m pymc_fastlogp.dev``: ``new-rule`` writes a rule that works before it is filled in; ``show-rule`` prints its graphs."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pymc_fastlogp.dev import PLACEHOLDERS, main

ROOT = Path(__file__).parents[1]


@pytest.fixture
def checkout(tmp_path):
    """Copy what the skeletons need of the checkout."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "pymc_fastlogp", tmp_path / "pymc_fastlogp", ignore=ignored)
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=ignored)
    (tmp_path / "docs" / "rewrites").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "rewrites" / "index.md", tmp_path / "docs" / "rewrites")
    return tmp_path


KINDS = {
    "module": ([], "scalars.ceil_of_floor.local_ceil_of_floor"),
    "pattern": (["--pattern"], "scalars.identities.ceil_of_floor"),
}


@pytest.mark.parametrize("database", ["canonicalize", "stabilize"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_new_rule_is_a_row_of_the_table(checkout, kind, database):
    options, function = KINDS[kind]
    arguments = ["new-rule", "ceil_of_floor", "--database", database, *options]
    assert main(arguments, checkout) == 0
    namespace = {"__name__": "rules"}
    exec((checkout / "pymc_fastlogp" / "rules.py").read_text(), namespace)
    [rule] = [rule for rule in namespace["RULES"] if rule.name == "fastlogp_ceil_of_floor"]
    assert (rule.function, rule.database) == (function, database)
    page = (checkout / "docs" / "rewrites" / "index.md").read_text().splitlines()
    [row] = [number for number, line in enumerate(page) if "`fastlogp_ceil_of_floor`" in line]
    assert page[row - 1].startswith("| `fastlogp_")
    assert main(arguments, checkout) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_skeletons_pass_their_own_tests(checkout, kind):
    options, _ = KINDS[kind]
    assert main(["new-rule", "ceil_of_floor", "--database", "stabilize", *options], checkout) == 0
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


def test_no_placeholder_of_a_skeleton_is_left():
    files = [*(ROOT / "pymc_fastlogp").rglob("*.py"), *(ROOT / "tests" / "rewrites").glob("*.py")]
    files.append(ROOT / "docs" / "rewrites" / "index.md")
    texts = {file: file.read_text() for file in files if file.name != "dev.py"}
    assert not [str(file) for file, text in texts.items() if any(x in text for x in PLACEHOLDERS)]


SHOWN = """\
before:
Sum{axes=None} [id A]
 └─ Alloc [id B]
after:
Sum{axes=None} [id A]
 └─ Mul [id B]
"""


@pytest.mark.slow
def test_a_rule_is_shown_with_its_graphs(capsys):
    assert main(["show-rule", "compact_rows", "zoo/normal", "--depth", "2"]) == 0
    assert capsys.readouterr().out.strip() == SHOWN.strip()
    assert main(["show-rule", "ive_of_orders", "zoo/normal"]) == 0
    assert capsys.readouterr().out == "ive_of_orders does not fire on zoo/normal.\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ceil-of-floor"], "not a valid module name"),
        (["ceil_of_floor", "--room", "attic"], "There is no folder"),
        (["log_of_product"], "already"),
        (["pow_to_sqrt", "--pattern"], "already"),
    ],
)
def test_bad_arguments_are_refused_in_a_line(checkout, capsys, arguments, message):
    before = (checkout / "pymc_fastlogp" / "rules.py").read_text()
    assert main(["new-rule", *arguments], checkout) == 1
    assert message in capsys.readouterr().err
    assert (checkout / "pymc_fastlogp" / "rules.py").read_text() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["no_such_rule", "zoo/normal"], "no rule"), (["pow_to_sqrt", "zoo/none"], "no model")],
)
def test_only_known_rules_and_models_are_shown(capsys, arguments, message):
    assert main(["show-rule", *arguments]) == 1
    assert message in capsys.readouterr().err
