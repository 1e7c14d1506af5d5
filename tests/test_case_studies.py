"""Notebooks are their text with its output, and the demo detects disagreement."""

import ast
from pathlib import Path

import jupytext
import nbformat
import numpy as np
import pandas as pd
import pytest

from case_studies.__main__ import executed, sources
from case_studies.comparison import MCSE_LIMIT, agreement, compare_posteriors, verdict
from case_studies.demo import Result, draw, exit_code, why_that_limit
from case_studies.sampling import Run
from pymc_fastlogp import BenchmarkResult
from tests.pictures import is_cut_off

SOURCES = sources()
each_source = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
HAVE_LEGENDS = ("legend(", "timing.plot(", "draw_slope(")
LARGEST_NOTEBOOK = 500_000  # bytes, so that the repository stays small


def summary(mean: list[float], mcse: float = 0.1) -> pd.DataFrame:
    names = [f"x[{i}]" for i in range(len(mean))]
    return pd.DataFrame({"mean": mean, "mcse_mean": mcse}, index=names)


def cells(notebook: nbformat.NotebookNode) -> list[tuple[str, str]]:
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


@each_source
def test_notebook_is_its_text_with_output(source: Path) -> None:
    path = source.with_suffix(".ipynb")
    notebook = nbformat.read(path, as_version=4)
    assert cells(notebook) == cells(jupytext.read(source)), "run `make notebooks`"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not [out for cell in code for out in cell.outputs if out.output_type == "error"]
    assert "assert " in code[-1].source
    assert "site-packages" not in path.read_text()  # warnings with paths of a machine
    assert path.stat().st_size < LARGEST_NOTEBOOK


@each_source
def test_notebook_can_be_pasted(source: Path) -> None:
    tree = ast.walk(ast.parse(source.read_text()))
    imported = {
        name.partition(".")[0]
        for node in tree
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert "pymc_fastlogp" in imported
    assert imported.isdisjoint({"benchmarks", "case_studies", "tests"})


@each_source
def test_every_plot_has_a_legend(source: Path) -> None:
    """A cell that shows a figure adds a legend, or draws by a function that does."""
    shown = [cell.source for cell in jupytext.read(source).cells if "plt.show()" in cell.source]
    assert shown
    assert [code for code in shown if not any(x in code for x in HAVE_LEGENDS)] == []


def test_equal_posteriors_agree() -> None:
    comparison = compare_posteriors(summary([1.0, 2.0]), summary([1.0, 2.0]))
    assert comparison["agrees"].all()
    assert (comparison["distance"] == 0.0).all()
    assert agreement(comparison) == "2 of 2 posterior means agree; all are equal up to round-off"
    assert exit_code([comparison]) == 0


@pytest.mark.parametrize(("shift", "agrees"), [(0.9, True), (1.1, False), (-1.1, False)])
def test_difference_is_judged_by_the_combined_standard_error(shift: float, agrees: bool) -> None:
    combined = float(np.hypot(0.1, 0.1))
    on = summary([1.0, 2.0 + shift * MCSE_LIMIT * combined])
    comparison = compare_posteriors(summary([1.0, 2.0]), on)
    assert list(comparison["agrees"]) == [True, agrees]
    assert comparison["distance"]["x[1]"] == pytest.approx(abs(shift) * MCSE_LIMIT)


def test_disagreement_is_named_and_fails_the_demo() -> None:
    same = compare_posteriors(summary([1.0]), summary([1.0]))
    different = compare_posteriors(summary([1.0, 2.0]), summary([1.0, 9.0]))
    distance = 7 / np.hypot(0.1, 0.1)
    assert agreement(different) == (
        f"1 of 2 posterior means agree; x[1] differs most, by {distance:.1f} MCSE of 5 allowed"
    )
    assert exit_code([same, different]) == 1


def test_mean_that_is_not_a_number_disagrees() -> None:
    comparison = compare_posteriors(summary([np.nan, 1.0]), summary([1.0, 1.0]))
    assert list(comparison["agrees"]) == [False, True]
    assert "x[0] differs most" in agreement(comparison)


def test_round_off_in_a_constant_agrees() -> None:
    off, on = summary([1.0], mcse=0.0), summary([1.0 + 1e-15], mcse=1e-18)
    assert compare_posteriors(off, on)["agrees"].all()
    assert not compare_posteriors(off, summary([1.0001], mcse=0.0))["agrees"].any()


def test_different_variables_are_refused() -> None:
    with pytest.raises(ValueError, match="sample the same model twice"):
        compare_posteriors(summary([1.0]), summary([1.0, 2.0]))


@pytest.mark.parametrize(
    ("ratio", "rewritten", "phrase"),
    [
        (0.9, True, "the rewritten graph is slower"),
        (1.0, True, "about the same speed"),
        (2.0, True, "2.00 times as fast"),
        (0.9, False, "no rewrite applies to this model: about the same"),
        (1.0, False, "no rewrite applies to this model: about the same"),
        (2.0, False, "no rewrite applies to this model: about the same"),
    ],
)
def test_verdict_boasts_only_of_what_was_measured(
    ratio: float, rewritten: bool, phrase: str
) -> None:
    sentence = verdict(ratio, rewritten)
    assert phrase in sentence
    assert f"{ratio:.2f}" in sentence
    assert ("times as fast" in sentence) == (rewritten and ratio == 2.0)


def test_demo_says_why_the_limit_is_wider_than_for_one_mean() -> None:
    said = why_that_limit(400)
    assert "400 means" in said
    assert "about 18 of them would differ by more than 2 MCSE by chance, and 0.0002" in said


def test_picture_of_the_demo_shows_what_it_quotes_and_cuts_no_word_off() -> None:
    off, on = summary([1.0, 2.0, 3.0]), summary([1.0, 2.1, 2.8])
    timing = BenchmarkResult(3, {"off": (6e-6,), "on": (2e-6,)})
    runs = (Run(None, means, 9.0, seconds) for means, seconds in ((off, 5.0), (on, 4.0)))
    figure = draw([Result("radon", *runs, rewritten=True, timing=timing)])
    distances, evaluation, sampling = figure.axes
    assert sum(bar.get_height() for bar in distances.patches) == 2  # one mean is the same
    assert [bar.get_width() for bar in evaluation.patches] == pytest.approx([6.0, 2.0])
    assert evaluation.get_title() == "logp and gradient: off / on is 3.00"
    assert [bar.get_width() for bar in sampling.patches] == [5.0, 4.0]
    assert not is_cut_off(figure)


def test_there_is_a_notebook() -> None:
    assert {"radon", "contraception"} <= {source.stem for source in SOURCES}


@pytest.mark.slow
@each_source
def test_notebook_runs_and_asserts_agreement(source: Path, tmp_path: Path) -> None:
    if source.stem == "contraception":
        pytest.importorskip("bambi", reason="Bambi is no part of the environment of tests")
    code = [cell for cell in executed(source, tmp_path).cells if cell.cell_type == "code"]
    assert all(cell.execution_count is not None for cell in code)
    assert not [out for cell in code for out in cell.outputs if out.output_type == "error"]
