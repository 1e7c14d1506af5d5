"""The table of effective samples is made from the JSON of a run."""

import json

import pytest

from benchmarks import throughput
from benchmarks import throughput_report as report
from benchmarks.report import MISSING
from benchmarks.throughput_models import MODELS, model_named
from benchmarks.throughput_sides import SIDES, USUAL, other_way
from tests.conftest import PYTHON


def run(side: str, seed: int, bulk: float, mean: float = 0.0, **changed) -> dict:
    measured = {
        "model": "radon",
        "side": side,
        "seed": seed,
        "compilation": 1.0,
        "draws": 1.0 * seed,
        "gradients": 10_000,
        "divergences": seed,
        "bulk": bulk,
        "tail": 2 * bulk,
        "slowest": "mu[0]",
        "rhat": 1.001,
        "means": {"mu[0]": mean},
        "errors": {"mu[0]": 0.1},
        "versions": {"pymc": "6.4.0", "jax": None},
    }
    return measured | changed


@pytest.fixture
def results() -> dict:
    runs = [
        run(side, seed, 400.0 * (1 + USUAL.index(side)), mean=float(seed))
        for side in USUAL
        for seed in (1, 2, 3)
    ]
    runs += [run("written", seed, 50.0) | {"model": "poisson"} for seed in (1, 2, 3)]
    runs += [
        run("reparametrize", seed, 100.0, mean=1.0) | {"model": "poisson"} for seed in (1, 2, 3)
    ]
    runs.append({"model": "radon", "side": "flow", "seed": 1, "failure": "more than 300 s"})
    return report.results_of(runs, list(MODELS))


def test_table_has_medians_ratios_and_checks_of_the_worst_seed(results):
    table = report.tables(results)
    # 400 effective samples in 1 + seed seconds.
    assert (
        "| `radon` | 133 | 267 | 400 | 533 | 0 | 4.00 | 2.00 | 1.001 / 1.001 / 1.001 / 1.001 | 3 / 3 / 3 / 3 |"
        in table
    )
    assert f"| `poisson` | 16.7 | {MISSING} | {MISSING} | 33.3 | {MISSING} | 2.00 | 2.00 |" in table
    assert "Without result: `radon` flow (more than 300 s)." in table
    assert "Medians of 3 seeds" in table
    # A difference of 1 and errors of 0.1 each.
    assert "at most 7.1 Monte Carlo errors" in table


def test_means_are_compared_where_both_have_converged():
    runs = [run("written", 1, 100.0), run("reparametrize", 1, 100.0, mean=1.0, rhat=1.2)]
    assert [x["furthest"] for x in report.results_of(runs, list(MODELS))["runs"]] == [None, None]


def test_measured_runs_are_not_repeated(tmp_path, monkeypatch):
    asked = []

    def measured(name, side, seeds, patience):
        asked.append(seeds)
        return {seed: run(side, seed, 100.0) for seed in seeds if seed != 3}, "it broke"

    monkeypatch.setattr(throughput, "_run", measured)
    for seeds in ("1", "2"), ("1", "2", "3"):
        monkeypatch.setattr(
            "sys.argv",
            [
                "x",
                "--model",
                "radon",
                "--side",
                "written",
                "--folder",
                str(tmp_path),
                "--seed",
                *seeds,
            ],
        )
        throughput.main()
    assert asked == [[1, 2], [3]]
    assert json.loads((tmp_path / "radon.written.3.json").read_text())["failure"] == "it broke"


@pytest.mark.parametrize("name", ["frailty", "zero_sum", "calendar_year", "schools_and_areas"])
def test_both_parametrizations_have_the_same_data(name):
    chosen = model_named(name)
    one, other = chosen.make(), other_way(chosen)
    [y], [again] = one.observed_RVs, other.observed_RVs
    assert (
        one.rvs_to_values[y].eval(mode=PYTHON) == other.rvs_to_values[again].eval(mode=PYTHON)
    ).all()
    names = {x.name for x in (*one.free_RVs, *one.deterministics)}
    assert names & {x.name for x in (*other.free_RVs, *other.deterministics)}


def test_sides_that_need_more_are_named_by_it():
    assert {name: side.needs for name, side in SIDES.items() if name not in USUAL} == {
        "flow": "flowjax",
        "vip": "pymc_extras",
    }
    assert all(SIDES[name].is_installed for name in USUAL)


def test_published_tables_match_the_json():
    results = json.loads(report.RESULTS.read_text())
    assert report.tables(results) in report.PAGE.read_text()


def test_a_side_that_failed_alone_has_a_table():
    run = {"model": "radon", "side": "flow", "seed": 1, "failure": "more than 240 s"}
    assert "No model has both." in report.tables(report.results_of([run], ["radon"]))
