"""Sphinx: the pages of this folder, and the case studies as notebooks with the output that is committed."""

import shutil
from pathlib import Path

from pymc_fastlogp import __version__
from pymc_fastlogp.rules import GRAPH_RULES, RULES

HERE = Path(__file__).parent
ROOT = HERE.parent

project = "pymc_fastlogp"
author = "The pymc_fastlogp developers"
copyright = author
release = __version__
version = release

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
# Case studies have their output; `make notebooks` writes it. Pages that say `force` at their top run each time.
nb_execution_mode = "off"
nb_execution_raise_on_error = True
nb_merge_streams = True
napoleon_google_docstring = False
napoleon_use_rtype = False
# The sections of a rule's docstring.
napoleon_custom_sections = ["When it applies", "When it refuses"]
autodoc_typehints = "none"

html_theme = "furo"
html_title = "pymc_fastlogp"
html_static_path = ["_static"]
html_css_files = ["output.css"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]


def empty_folder(*names: str) -> Path:
    """Return a folder below this one, without the pages of an earlier build."""
    folder = HERE.joinpath(*names)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def copy_case_studies() -> None:
    """Copy the case studies below this folder, since Sphinx reads no other."""
    folder = empty_folder("case_studies")
    for notebook in (ROOT / "case_studies").glob("*/*.ipynb"):
        shutil.copy2(notebook, folder)


RULE_PAGE = """# {names}

Switch off: `PYTENSOR_FLAGS=optimizer_excluding={excluded}`.

```{{eval-rst}}
.. automodule:: {module}
```
"""


def write_rule_pages() -> None:
    """Write a page for each module of rules, made of its docstring."""
    names: dict[str, list[str]] = {}
    for rule in RULES:
        names.setdefault(f"rewrites.{rule.function}".rpartition(".")[0], []).append(rule.name)
    for graph_rule in GRAPH_RULES:
        names.setdefault(graph_rule.rewriter.rpartition(".")[0], []).append(graph_rule.name)
    folder = empty_folder("rewrites", "rules")
    for module, rules in names.items():
        if not module.startswith("rewrites.") or module.startswith("rewrites.pytensor."):
            continue  # PyTensor's own rewriters, and kernels, which have pages of their own
        rules = list(dict.fromkeys(rules))
        page = RULE_PAGE.format(
            names=", ".join(f"`{rule}`" for rule in rules),
            excluded=":".join(rules),
            module=f"pymc_fastlogp.{module}",
        )
        (folder / f"{rules[0]}.md").write_text(page)


copy_case_studies()
write_rule_pages()
