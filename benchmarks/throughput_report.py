"""Summarize the measurements of :mod:`benchmarks.throughput` as the JSON and the table of the docs."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any

import numpy as np

from benchmarks.machine import machine
from benchmarks.report import MISSING, ROOT, digits, write_table
from benchmarks.throughput_sides import SIDES, USUAL

RESULTS = ROOT / "benchmarks" / "results" / "throughput.json"
PAGE = ROOT / "docs" / "reparametrize.md"
MARKER = "table of effective samples"

Run = dict[str, Any]
# Largest R-hat of runs whose posterior means are compared.
CONVERGED = 1.01
LARGE = ("means", "errors")


def results_of(runs: Sequence[Run], models: Sequence[str]) -> dict[str, Any]:
    """Return the published results: runs in the order of models and sides, each with its largest difference of means instead of all means."""
    written = {(x["model"], x["seed"]): x for x in runs if x["side"] == "written"}
    order = {name: i for i, name in enumerate([*models, *SIDES])}
    kept = []
    for run in sorted(runs, key=lambda x: (order[x["model"]], order[x["side"]], x["seed"])):
        furthest = _furthest(written.get((run["model"], run["seed"])), run)
        kept.append({x: y for x, y in run.items() if x not in LARGE} | {"furthest": furthest})
    return {"date": datetime.now(UTC).date().isoformat(), "machine": machine(), "runs": kept}


def _furthest(one: Run | None, other: Run) -> tuple[float, str] | None:
    """Return the largest difference of posterior means in Monte Carlo errors, and the quantity; None unless both runs converged."""
    if one is None or one is other or "failure" in one | other:
        return None
    if max(one["rhat"], other["rhat"]) > CONVERGED:
        return None
    found = [(0.0, "")]
    for name in one["means"].keys() & other["means"].keys():
        error = np.hypot(one["errors"][name], other["errors"][name])
        if error > 0:
            found.append((float(abs(one["means"][name] - other["means"][name]) / error), name))
    return max(found)


def effective(run: Run) -> float:
    """Return the smaller of bulk and tail effective sample size, of the worst quantity."""
    return 0.0 if "failure" in run else float(min(run["bulk"], run["tail"]))


def per_second(run: Run) -> float:
    """Return effective samples per second of compilation and draws, 0 for a failed run."""
    return 0.0 if "failure" in run else effective(run) / (run["compilation"] + run["draws"])


def line(run: Run) -> str:
    """Return the line that is printed for a run."""
    head = f"{run['model']} {run['side']} {run['seed']}:"
    if "failure" in run:
        return f"{head} {run['failure']}"
    return (
        f"{head} {per_second(run):.1f}/s, bulk {run['bulk']:.0f}, tail {run['tail']:.0f} ({run['slowest']}),"
        f" wait {run['compilation']:.2f} + {run['draws']:.2f} s, {run['gradients']} gradients,"
        f" {run['divergences']} divergences, R-hat {run['rhat']:.3f}"
    )


class _Runs:
    """Runs by model and side, seeds in order."""

    def __init__(self, runs: Iterable[Run]):
        self._runs: dict[tuple[str, str], list[Run]] = {}
        for run in runs:
            self._runs.setdefault((run["model"], run["side"]), []).append(run)
        self.models = list(dict.fromkeys(model for model, _ in self._runs))

    def of(self, model: str, side: str) -> list[Run]:
        return self._runs.get((model, side), [])

    def sides(self, wanted: Iterable[str]) -> list[str]:
        return [x for x in wanted if any(self.of(model, x) for model in self.models)]

    def median(self, model: str, side: str, of: Callable[[Run], float]) -> float:
        return median(map(of, self.of(model, side))) if self.of(model, side) else np.nan


def tables(results: dict[str, Any]) -> str:
    """Return the table of the docs, with its summary and caption."""
    runs = _Runs(results["runs"])
    shown = [x for x in runs.models if any(runs.of(x, side) for side in USUAL)]
    sides = runs.sides(SIDES)
    parts = [_table(runs, shown, sides), _summary(runs, shown)]
    return "\n\n".join([*parts, *_failures(results["runs"]), _caption(results)])


def _table(runs: _Runs, models: Sequence[str], sides: Sequence[str]) -> str:
    checked = [x for x in sides if x in USUAL]
    titles = " / ".join(SIDES[x].title for x in checked)
    header = [
        "model",
        *(SIDES[x].title for x in sides),
        "ratio to written",
        "ratio to the better form",
        f"R-hat: {titles}",
        f"divergences: {titles}",
    ]
    rows = [["---", *["---:"] * (len(header) - 1)]]
    for model in models:
        medians = [runs.median(model, side, per_second) for side in sides]
        cells = [MISSING if np.isnan(x) else digits(x) for x in medians]
        ratios = [MISSING if np.isnan(x) else f"{x:.2f}" for x in _ratios(runs, model)]
        rhats = [_worst(runs.of(model, side), "rhat", ".3f") for side in checked]
        counts = [_worst(runs.of(model, side), "divergences", "d") for side in checked]
        rows.append([f"`{model}`", *cells, *ratios, " / ".join(rhats), " / ".join(counts)])
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, *rows))


def _ratios(runs: _Runs, model: str) -> tuple[float, float]:
    """Return the speed of reparametrize relative to the model as written, and to the better of both forms."""
    new, written, other = (
        runs.median(model, x, per_second) for x in ("reparametrize", "written", "other")
    )
    return new / written, new / np.nanmax([written, other])


def _summary(runs: _Runs, models: Sequence[str]) -> str:
    ratios = np.array([_ratios(runs, model) for model in models]).reshape(-1, 2)
    ratios = ratios[np.isfinite(ratios).all(axis=1)]
    if not len(ratios):
        return "No model has both."
    written, better = np.median(ratios, axis=0)
    faster = (ratios >= 1).sum(axis=0)
    distances = [
        x["furthest"][0] for m in models for x in runs.of(m, "reparametrize") if x.get("furthest")
    ]
    means = (
        f" Posterior means differ from those of the model as written by at most {max(distances):.1f} Monte Carlo errors, if R-hat of both is below {CONVERGED}."
        if distances
        else ""
    )
    return (
        f"Median ratios: {written:.2f} to the model as written, {better:.2f} to the better form. `reparametrize` is at least as fast as the model as written for "
        f"{faster[0]} of {len(ratios)} models, and at least as fast as the better form for {faster[1]}. The least ratios are {ratios[:, 0].min():.2f} and "
        f"{ratios[:, 1].min():.2f}.{means}"
    )


def _failures(runs: Sequence[Run]) -> list[str]:
    """Return a sentence that lists runs without result, if there are any."""
    found = dict.fromkeys(
        f"`{x['model']}` {SIDES[x['side']].title} ({x['failure']})" for x in runs if "failure" in x
    )
    return [f"Without result: {'; '.join(found)}."] if found else []


def _caption(results: dict[str, Any]) -> str:
    """Return the machine, the versions and the seeds of a measurement."""
    versions = dict.fromkeys(
        ", ".join(f"{x} {y}" for x, y in run["versions"].items() if y and x != "commit")
        for run in results["runs"]
        if "versions" in run
    )
    chip, seeds = results["machine"], {run["seed"] for run in results["runs"]}
    return (
        f"Medians of {len(seeds)} seeds; R-hat and divergences of the worst seed. One core of {chip['cpu']} ({chip['vector_bits']}-bit vectors). "
        f"{'; '.join(versions)}. Single runs are in `benchmarks/results/throughput.json`."
    )


def _worst(runs: Sequence[Run], of: str, form: str) -> str:
    values = [x[of] for x in runs if "failure" not in x]
    return format(max(values), form) if values else MISSING


def publish(results: dict[str, Any]) -> None:
    """Write the table of the docs."""
    write_table(PAGE, tables(results), MARKER)
