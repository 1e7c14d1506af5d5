"""Every block of Python in the README and the docs runs, page by page from the top, and every name in them is there."""

import logging
import re
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "_build" not in path.parts
}
BLOCK = re.compile(r"^```(?:python|\{code-cell\} ipython3)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

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


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if BLOCK.search(text)])
def test_blocks_run_in_order(page):
    text, namespace = PAGES[page], {"__name__": "page"}
    for block in BLOCK.finditer(text):
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


def test_what_tab_offers_is_what_the_docs_describe():
    import pymc_fastlogp

    assert dir(pymc_fastlogp) == sorted([*pymc_fastlogp.__all__, "__version__"])
    described = PAGES["docs/api.md"] + PAGES["docs/explain.md"]
    for name in pymc_fastlogp.__all__:
        assert re.search(rf"auto(function|class):: (pymc_fastlogp\.)?{name}\n", described), name
