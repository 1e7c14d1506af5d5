"""Python blocks of the README and the docs run page by page, and all names, commands and files in them exist."""

import logging
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import matplotlib
import pytest

from pymc_fastlogp.rules import GRAPH_RULES, RULES

ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "_build" not in path.parts
}
BLOCK = re.compile(r"^```(?:python|\{code-cell\} ipython3)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# A block that begins so is a file of that name, which is run as a script.
FILE = re.compile(r"# (\w+\.py)\n")

# A name of LLVM code that looks like an attribute.
NOT_OURS = {"pymc_fastlogp.dgemm"}


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """Run in an empty folder, without a screen, and take back what a page does to the logger."""
    logger = logging.getLogger("pymc_fastlogp")
    level, root_handlers = logger.level, list(logging.root.handlers)
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    yield
    logger.setLevel(level)
    logging.root.handlers[:] = root_handlers


@pytest.mark.usefixtures("alone", "with_c")
@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if BLOCK.search(text)])
def test_blocks_run_in_order(page):
    text, namespace = PAGES[page], {"__name__": "page"}
    for block in BLOCK.finditer(text):
        if file := FILE.match(block[1]):
            Path(file[1]).write_text(block[1])
            path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
            subprocess.run(
                [sys.executable, file[1]], env=os.environ | {"PYTHONPATH": path}, check=True
            )
            continue
        # As many empty lines as stand above it, so that an error names the line of the page.
        above = "\n" * (text.count("\n", 0, block.start()) + 1)
        exec(compile(above + block[1], page, "exec"), namespace)


def test_names_are_there_after_the_import_alone(run_script):
    found = {
        name
        for text in PAGES.values()
        for name in re.findall(r"(?<![\w/\"])pymc_fastlogp(?:\.[A-Za-z_]\w*)+(?!/)", text)
        if not name.endswith((".md", ".py"))
    }
    process = run_script(
        f"""
        import importlib, operator
        import pymc_fastlogp

        for name in {sorted(found - NOT_OURS)}:
            try:
                operator.attrgetter(name.partition(".")[2])(pymc_fastlogp)
            except AttributeError:
                try:
                    importlib.import_module(name)
                except ImportError:
                    module, _, attribute = name.rpartition(".")
                    if not hasattr(importlib.import_module(module), attribute):
                        print(name)
        """
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == []


MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+|\.venv):", MAKEFILE, re.MULTILINE))
EVERY_PAGE = PAGES | {
    name: (ROOT / name).read_text()
    for name in ("CONTRIBUTING.md", "Makefile", ".ci/run", ".github/workflows/ci.yml")
}


def test_commands_of_make_are_there():
    named = {
        target
        for text in EVERY_PAGE.values()
        # In code, or where a line begins with it.
        for target in re.findall(
            r"(?:`|^\s*(?:- run: )?)make (?:[A-Z_]+=\S+ )*([a-z.-]+)", text, re.MULTILINE
        )
    }
    assert {"demo", "test", "check", "docs", "notebooks"} <= named
    assert named <= TARGETS


def test_every_target_of_make_is_explained_at_its_top():
    header = MAKEFILE.partition("\n\n")[0]
    assert set(re.findall(r"^# make (\S+)", header, re.MULTILINE)) == TARGETS - {"lint", "clean"}


@pytest.mark.parametrize(
    "module",
    sorted({m for text in PAGES.values() for m in re.findall(r"python -m ([\w.]+)", text)}),
)
def test_modules_that_are_run_are_there(module):
    assert find_spec(module) is not None
    is_package = (find_spec(module).submodule_search_locations) is not None
    assert not is_package or find_spec(f"{module}.__main__") is not None


LINK = re.compile(r"\]\(([^)\s:#]+)(?:#[\w-]+)?\)")


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_files_that_are_linked_are_there(page):
    folder = (ROOT / page).parent
    missing = [x for x in LINK.findall(EVERY_PAGE[page]) if not (folder / x).exists()]
    assert not missing


def test_every_rule_is_in_the_list_of_rewrites():
    page = PAGES["docs/rewrites/index.md"]
    assert [rule.name for rule in (*RULES, *GRAPH_RULES) if f"`{rule.name}`" not in page] == []


def test_public_names_are_documented():
    import pymc_fastlogp

    assert dir(pymc_fastlogp) == sorted([*pymc_fastlogp.__all__, "__version__"])
    described = PAGES["docs/api.md"] + PAGES["docs/explain.md"]
    for name in pymc_fastlogp.__all__:
        assert re.search(rf"auto(function|class):: (pymc_fastlogp\.)?{name}\n", described), name
