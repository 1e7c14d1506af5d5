"""Notebooks run from the first cell to the last, and the demo detects disagreement."""

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import jupytext
import nbclient
import numpy as np
import pandas as pd
import pytest

from case_studies.comparison import MCSE_LIMIT, agreement, compare_posteriors, verdict
from case_studies.demo import Result, draw, exit_code, why_that_limit
from case_studies.sampling import Run
from pymc_fastlogp import BenchmarkResult
from tests.pictures import is_cut_off

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "case_studies").glob("*/*.py"))


def summary(mean: list[float], mcse: float = 0.1) -> pd.DataFrame:
    names = [f"x[{i}]" for i in range(len(mean))]
    return pd.DataFrame({"mean": mean, "mcse_mean": mcse}, index=names)


def test_imports_of_notebooks_exist() -> None:
    imports = [
        (str(node.module), x.name)
        for path in NOTEBOOKS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        for x in node.names
    ]
    ours = [
        x for x in imports if x[0].split(".")[0] in ("benchmarks", "case_studies", "pymc_fastlogp")
    ]
    assert ours
    assert [x for x in ours if not _is_there(*x)] == []


def _is_there(module: str, name: str) -> bool:
    return hasattr(import_module(module), name) or find_spec(f"{module}.{name}") is not None


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
    assert ROOT / "case_studies" / "radon" / "radon.py" in NOTEBOOKS


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_asserts_agreement(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = jupytext.read(path)

    nbclient.NotebookClient(
        notebook, timeout=1200, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()

    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count is not None for cell in code)
    assert not [out for cell in code for out in cell.outputs if out.output_type == "error"]
    assert "assert agree" in code[-1].source
