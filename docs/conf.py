"""Sphinx: the pages of this folder, and the case studies as notebooks that are run when they have changed."""

import os
from pathlib import Path

import jupytext

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
# The case studies sample for minutes, so what they printed is kept, in _build, until their code changes.
# DOCS_EXECUTE=off leaves their output out. Pages that say `force` at their top run each time.
nb_execution_mode = os.environ.get("DOCS_EXECUTE", "cache")
nb_execution_cache_path = str(HERE / "_build" / ".jupyter_cache")
nb_execution_timeout = 1800
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


def write_case_studies() -> None:
    """Make notebooks below this folder of the case studies, whose text is kept beside the package."""
    # Their kernels import `benchmarks` and `case_studies`.
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), path]))
    for source in sorted((ROOT / "case_studies").glob("*/*.py")):
        target = HERE / "case_studies" / f"{source.stem}.ipynb"
        target.parent.mkdir(exist_ok=True)
        # Not each time: the names of cells are random.
        if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
            jupytext.write(jupytext.read(source), target)


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
    folder = HERE / "rewrites" / "rules"
    folder.mkdir(exist_ok=True)
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


write_case_studies()
write_rule_pages()
