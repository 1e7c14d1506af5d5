"""The tables and the picture of the user's wait are made from the JSON of one run."""

import json
import subprocess
import sys

import pytest

from benchmarks import first_draw, to_first_draw
from benchmarks import first_draw_child as child
from benchmarks import first_draw_report as report
from benchmarks.fresh_process import call, environment
from benchmarks.report import insert_table
from benchmarks.suite import SUITE, case
from pymc_fastlogp.benchmarking import BenchmarkResult
from tests.pictures import is_cut_off

SECONDS = {
    "off": 12.0,
    "import": 9.0,
    "compile_kwargs": 4.0,
    "sample": 2.0,
    "nutpie-JAX": 150.0,
    "NumPyro": 20.0,
    "Stan": 5.0,
}
STOPPED = {report.STOPPED: 75.0}


def record(name: str) -> dict:
    runs = {
        f"{side}, {state}": {"imports": 2.5, "compile": seconds / share, "sampling": seconds}
        for state, share in (("cold", 1), ("warm", 10))
        for side, seconds in SECONDS.items()
        if side in report.sides_of(name) and state in report.states_of(side)
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
    cold, warm, compile_cold, rest = report.tables(results).split(" s:\n\n")[1:]
    assert (
        "| model | off | import | compile_kwargs | sample | nutpie-JAX | NumPyro | Stan |" in cold
    )
    assert "| eight schools (real), 8 rows | 26.5 | 20.5 | 10.5 | 6.5 | 302 | 42.5 | 12.5 |" in cold
    assert "| eight schools (real), 8 rows | 15.7 | 12.4 | 6.9 | 4.7 |" in warm
    assert "| eight schools (real), 8 rows | 12 | 9 | 4 | 2 | 150 | 20 | 5 |" in compile_cold
    assert "| eight schools (real), 8 rows | 1.2 | 0.9 | 0.4 | 0.2 |" in rest
    assert all(word in rest for word in ("2026-01-02", "a CPU", "pymc 6.4.0", "commit abc"))
    assert "Not measured" not in rest


def test_sides_that_were_not_measured_have_no_column(results):
    for each in results["models"]:
        each["runs"] = {x: run for x, run in each["runs"].items() if not x.startswith("NumPyro")}
    del results["models"][0]["runs"]["compile_kwargs, cold"]
    text = report.tables(results)
    assert "| model | off | import | compile_kwargs | sample | nutpie-JAX | Stan |" in text
    assert "| radon (real), 919 rows | 26.5 | 20.5 | – | 6.5 |" in text  # noqa: RUF001
    assert text.endswith("Not measured: NumPyro.")
    assert not is_cut_off(report.draw(results))


def test_only_the_sides_of_one_run_are_measured(results):
    first = results["models"][0]
    first["runs"] = {"NumPyro, cold": first["runs"]["NumPyro, cold"]}
    results["models"], first["logp"] = [first], None
    assert (
        "| model | NumPyro |\n| --- | ---: |\n| radon (real), 919 rows | 42.5 |"
        in report.tables(results)
    )
    assert "| – | – | – | – | – | – |" in report.headline_table(results)  # noqa: RUF001


def test_a_run_that_was_stopped_is_longer_than_its_time(results):
    first = results["models"][0]
    first["runs"]["nutpie-JAX, cold"] = STOPPED
    text = report.tables(results)
    assert "| radon (real), 919 rows | 26.5 | 20.5 | 10.5 | 6.5 | > 75 | 42.5 | 12.5 |" in text
    assert "| radon (real), 919 rows | 12 | 9 | 4 | 2 | – | 20 | 5 |" in text  # noqa: RUF001
    figure = report.draw(results)
    assert "> 75 s" in [text.get_text().strip() for text in figure.axes[0].texts]


def test_a_side_that_hangs_or_fails_does_not_end_the_run(monkeypatch, capsys):
    def call(function, *arguments, folder, timeout=None):
        if function is not child.sample:
            return {}
        match arguments[0]:
            case "nutpie-JAX":
                raise subprocess.TimeoutExpired("python", timeout)
            case "NumPyro":
                raise RuntimeError("no rule for this Op")
        return {"imports": 1.0, "compile": 2.0, "sampling": 3.0}

    monkeypatch.setattr(first_draw, "call", call)
    runs = first_draw.measure("radon", ("off", "nutpie-JAX", "NumPyro"), rounds=2)["runs"]
    assert runs["off, warm"] == {"imports": 1.0, "compile": 2.0, "sampling": 3.0}
    assert runs["nutpie-JAX, cold"] == {report.STOPPED: first_draw.PATIENCE}
    assert not any(x.startswith("NumPyro") for x in runs)
    assert "radon, NumPyro: no rule for this Op" in capsys.readouterr().err


def test_picture_says_the_seconds_and_cuts_no_word_off(results):
    figure = report.draw(results)
    assert not is_cut_off(figure)
    assert len(figure.axes) == len(report.HEADLINES)
    for ax, name in zip(figure.axes, report.HEADLINES, strict=True):
        expected = ["26.5 s", "20.5 s", "10.5 s", "6.5 s", "302 s", "42.5 s"]
        expected += ["12.5 s"] * ("Stan" in report.sides_of(name))
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
    monkeypatch.setattr(to_first_draw, "run", lambda *arguments, folder: {})
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
    modules = "benchmarks.first_draw_child, benchmarks.fresh_process"
    program = f"import sys, {modules}; sys.exit('pymc_fastlogp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=report.ROOT).returncode == 0


def test_a_function_is_called_in_a_fresh_process(tmp_path):
    assert call(report.digits, 1234.5, folder=tmp_path) == "1234"
    with pytest.raises(RuntimeError, match=r"exit status 1: .*no model named 'no such'"):
        call(child.sample, "Stan", "no such", folder=tmp_path)
