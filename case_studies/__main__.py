"""Run case studies and write them as notebooks with their output: ``python -m case_studies [NAME ...]``, all by default."""

import os
import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

HERE = Path(__file__).parent


def sources() -> list[Path]:
    """Return the case studies as text."""
    return sorted(HERE.glob("*/*.py"))


def executed(source: Path, folder: Path) -> NotebookNode:
    """Return the notebook of a text, run in a folder."""
    notebook = jupytext.read(source)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # random ones would differ from run to run
    # tqdm asks for ipywidgets, whose bars are no part of a stored output; others warn of their own future.
    os.environ["PYTHONWARNINGS"] = (
        "ignore:IProgress not found,ignore:PyTensor could not link,ignore::FutureWarning"
    )
    NotebookClient(
        notebook,
        timeout=1800,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": folder}},
    ).execute()
    return notebook


if __name__ == "__main__":
    for source in sources():
        if source.stem in sys.argv[1:] or not sys.argv[1:]:
            print(source.stem, flush=True)
            nbformat.write(executed(source, source.parent), source.with_suffix(".ipynb"))
