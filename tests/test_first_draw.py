"""The tables and the picture of the user's wait are made from the JSON of one run."""

import json
import subprocess
import sys

import pytest

from benchmarks import first_draw_report as report
from benchmarks import to_first_draw
from benchmarks.fresh_process import environment
from benchmarks.report import insert_table
from benchmarks.suite import SUITE, case
from pymc_fastlogp.benchmarking import BenchmarkResult
from tests.pictures import is_cut_off

SECONDS = {"off": 12.0, "import": 9.0, "sample": 2.0, "JAX": 150.0, "Stan": 5.0}


def record(name: str) -> dict:
    runs = {
        f"{side}, {state}": {"imports": 2.5, "compile": seconds / share, "sampling": seconds}
        for state, share in (("cold", 1), ("warm", 10))
        for side, seconds in SECONDS.items()
        if side in report.sides_of(name)
    }
    logp = BenchmarkResult(3, {"off": (6e-6, 8e-6), "on": (2e-6, 2e-6)}).to_dict()
    return {"name": name, "title": case(name).title, "runs": runs, "logp": logp}


@pytest.fixture
def results() -> dict:
    return {
        "date": "2026-01-02",
        "machine": {"cpu": "a CPU", "vector_bits": 256, "os": "an OS"},
        "versions": {"pymc": "6.4.0", "commit": "abc"},
        "rounds": 1,
        "models": [record(name) for name in (*report.HEADLINES, "eight_schools")],
    }


def test_headlines_are_six_models_of_real_data():
    assert len(report.HEADLINES) == 6
    assert all("(real)" in case(name).title for name in report.HEADLINES)


def test_table_of_the_readme_has_first_runs_and_speed_ups(results):
    header, _, *rows, _, below = report.headline_table(results).splitlines()
    assert header.startswith("| model and data | off, s | import, s | sample, s | off / sample |")
    assert len(rows) == len(report.HEADLINES)
    assert rows[0].endswith("| 26.5 | 20.5 | 6.5 | 4.08 x | 3.34 x | 3.5 x |")
    assert "1.3 to 1.3 x (off / import)" in below
    assert "Ahead of `sample` in the first run: none." in below
    assert "One run on a CPU, PyMC 6.4.0" in below
    results["models"][0]["runs"]["Stan, cold"]["sampling"] = 0.0
    results["models"][0]["runs"]["Stan, cold"]["compile"] = 0.0
    assert "in the first run: Stan on radon." in report.headline_table(results)


def test_tables_of_the_docs_have_all_sides_and_models(results):
    whole, compilation = report.tables(results).split("From the call")
    assert "| eight schools (real), 8 rows | 26.5 | 20.5 | 6.5 | 302 | 12.5 |" in whole
    assert "| eight schools (real), 8 rows | 12 | 9 | 2 | 150 | 5 | 1.2 |" in compilation
    assert all(word in compilation for word in ("2026-01-02", "a CPU", "pymc 6.4.0", "commit abc"))


def test_picture_says_the_seconds_and_cuts_no_word_off(results):
    figure = report.draw(results)
    assert not is_cut_off(figure)
    assert len(figure.axes) == len(report.HEADLINES)
    for ax, name in zip(figure.axes, report.HEADLINES, strict=True):
        expected = ["26.5 s", "20.5 s", "6.5 s", "302 s"] + ["12.5 s"] * (
            "Stan" in report.sides_of(name)
        )
        assert [text.get_text().strip() for text in ax.texts] == expected


def test_published_tables_match_the_json():
    results = json.loads(report.RESULTS.read_text())
    assert report.headline_table(results) in report.README.read_text()
    assert report.tables(results) in report.PAGE.read_text()


def test_table_of_first_draws_matches_the_json():
    text = to_first_draw.PAGE.read_text()
    if not to_first_draw.RESULTS.exists():
        assert "Not measured yet" in text
        return
    results = json.loads(to_first_draw.RESULTS.read_text())
    assert [x["name"] for x in results["models"]] == [x.name for x in SUITE]
    assert insert_table(text, to_first_draw.table(results), to_first_draw.MARKER) == text


def test_a_run_of_first_draws_that_was_interrupted_goes_on(tmp_path, monkeypatch):
    names = [x.name for x in SUITE]
    measured = []

    def measure(name):
        measured.append(name)
        if len(measured) == 3:
            raise KeyboardInterrupt
        seconds = {f"{x}, {y}": 1.0 for x in to_first_draw.SIDES for y in ("cold", "warm")}
        return {"name": name, "title": name, "seconds": seconds}

    published = []
    monkeypatch.setattr(to_first_draw, "RESULTS", tmp_path / "to_first_draw.json")
    monkeypatch.setattr(to_first_draw, "run", lambda *options, folder: {})
    monkeypatch.setattr(to_first_draw, "measure", measure)
    monkeypatch.setattr(to_first_draw, "publish", published.append)
    monkeypatch.setattr("sys.argv", ["to_first_draw"])
    with pytest.raises(KeyboardInterrupt):
        to_first_draw.main()
    monkeypatch.setattr("sys.argv", ["to_first_draw", "--missing"])
    to_first_draw.main()
    assert measured == [*names[:3], *names[2:]]
    [results] = published
    assert [x["name"] for x in results["models"]] == names


def test_processes_find_neither_models_of_the_user_nor_the_plugin_off(tmp_path, monkeypatch):
    monkeypatch.setenv("PYMC_FASTLOGP_CACHE", str(tmp_path / "user"))
    monkeypatch.setenv("PYMC_FASTLOGP", "0")
    assert {"PYMC_FASTLOGP_CACHE", "PYMC_FASTLOGP"}.isdisjoint(environment(tmp_path))
    assert environment(tmp_path, kept="0")["PYMC_FASTLOGP_CACHE"] == "0"


def test_the_process_of_a_side_without_the_plugin_does_not_import_it():
    program = "import sys, benchmarks.first_draw_child; sys.exit('pymc_fastlogp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=report.ROOT).returncode == 0
