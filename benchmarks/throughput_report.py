"""From what :mod:`benchmarks.throughput` has measured to the JSON and the tables of the docs."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any

import numpy as np

from benchmarks.machine import machine
from benchmarks.report import MISSING, ROOT, digits, insert_table
from benchmarks.throughput_sides import SIDES, USUAL

RESULTS = ROOT / "benchmarks" / "results" / "throughput.json"
PAGE = ROOT / "docs" / "reparametrize.md"
MARKER = "table of effective samples"

Run = dict[str, Any]
# Means are compared where both have converged.
CONVERGED = 1.01
# Largest differences of means that chance explains, in Monte Carlo errors, of up to some thousand quantities.
UNSUSPICIOUS = 5.0
LARGE = ("means", "errors")


def results_of(runs: Sequence[Run], models: Sequence[str]) -> dict[str, Any]:
    """Return what is published: the runs in the order of models and sides, with the largest difference of means in place of all means."""
    written = {(x["model"], x["seed"]): x for x in runs if x["side"] == "written"}
    order = {name: i for i, name in enumerate([*models, *SIDES])}
    kept = []
    for run in sorted(runs, key=lambda x: (order[x["model"]], order[x["side"]], x["seed"])):
        furthest = _furthest(written.get((run["model"], run["seed"])), run)
        kept.append({x: y for x, y in run.items() if x not in LARGE} | {"furthest": furthest})
    return {"date": datetime.now(UTC).date().isoformat(), "machine": machine(), "runs": kept}


def _furthest(one: Run | None, other: Run) -> tuple[float, str] | None:
    """Return the largest difference of posterior means in Monte Carlo errors, and of which quantity; None where it says nothing."""
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
    """Return the smaller one of bulk and tail, of the worst quantity."""
    return 0.0 if "failure" in run else float(min(run["bulk"], run["tail"]))


def per_second(run: Run) -> float:
    """Return effective samples per second of the whole wait, 0 of a side that failed."""
    return 0.0 if "failure" in run else effective(run) / (run["compilation"] + run["draws"])


def per_second_of_draws(run: Run) -> float:
    """Return effective samples per second without compilation."""
    return 0.0 if "failure" in run else effective(run) / run["draws"]


def per_gradient(run: Run) -> float:
    """Return effective samples per 1000 gradients."""
    return 0.0 if "failure" in run else 1000 * effective(run) / run["gradients"]


def line(run: Run) -> str:
    """Return what a run prints."""
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
    """Return the tables of the docs."""
    runs = _Runs(results["runs"])
    usual, others = runs.sides(USUAL), runs.sides(x for x in SIDES if x not in USUAL)
    shown = [x for x in runs.models if any(runs.of(x, side) for side in usual)]
    parts = [
        f"Effective samples per second of the whole wait:\n\n{_waits(runs, shown, usual)}",
        _medians(runs, shown),
        f"Effective samples, and how many there are for 1000 gradients:\n\n{_samples(runs, shown, usual)}",
        f"Of the worst seed:\n\n{_checks(runs, shown, usual)}",
    ]
    if others:
        compared = [x for x in runs.models if any(runs.of(x, side) for side in others)]
        sides = runs.sides(["written", "other", "reparametrize", *others])
        title = "nutpie's flow and VIP of pymc-extras, effective samples per second of the wait and for 1000 gradients:"
        parts.append(f"{title}\n\n{_others(runs, compared, sides)}")
    return "\n\n".join([*parts, *_failures(results["runs"]), _measured(results)])


def _waits(runs: _Runs, models: Sequence[str], sides: Sequence[str]) -> str:
    header = [
        "model",
        *(SIDES[x].title for x in sides),
        "reparametrize : written",
        ": the better",
        ": written, without compilation",
    ]
    rows = []
    for model in models:
        cells = [_cell(runs.of(model, side), per_second) for side in sides]
        ratios = (MISSING if np.isnan(x) else f"{x:.2f}" for x in _ratios(runs, model))
        rows.append([f"`{model}`", *cells, *ratios])
    return _table(header, rows)


def _ratios(runs: _Runs, model: str) -> tuple[float, float, float]:
    """Return how many times as many samples reparametrize gives as written, as the better way by hand, and as written without compilation."""
    new, written, other = (
        runs.median(model, x, per_second) for x in ("reparametrize", "written", "other")
    )
    draws = [runs.median(model, x, per_second_of_draws) for x in ("reparametrize", "written")]
    return new / written, new / np.nanmax([written, other]), draws[0] / draws[1]


def _medians(runs: _Runs, models: Sequence[str]) -> str:
    ratios = np.array([_ratios(runs, model) for model in models]).reshape(-1, 3)
    ratios = ratios[np.isfinite(ratios).all(axis=1)]
    if not len(ratios):
        return "No model has both."
    written, better, without = np.median(ratios, axis=0)
    return (
        f"Medians of the ratios: {written:.2f} of written, {better:.2f} of the better way by hand, {without:.2f} of written without compilation. Reparametrized, "
        f"{(ratios[:, 0] >= 1).sum()} of {len(ratios)} models are at least as fast as written, and {(ratios[:, 1] >= 1).sum()} as the better way; the least ratio "
        f"to written is {ratios[:, 0].min():.2f}."
    )


def _samples(runs: _Runs, models: Sequence[str], sides: Sequence[str]) -> str:
    titles = [SIDES[x].title for x in sides]
    header = ["model", *titles, *(f"{x}, per 1000 gradients" for x in titles)]
    rows = []
    for model in models:
        sizes = [_cell(runs.of(model, side), effective) for side in sides]
        gradients = [_cell(runs.of(model, side), per_gradient) for side in sides]
        rows.append([f"`{model}`", *sizes, *gradients])
    return _table(header, rows)


def _checks(runs: _Runs, models: Sequence[str], sides: Sequence[str]) -> str:
    titles = " / ".join(SIDES[x].title for x in sides)
    of_written = [x for x in sides if x != "written"]
    header = [
        "model",
        f"R-hat: {titles}",
        f"divergences: {titles}",
        f"means against written, in Monte Carlo errors: {' / '.join(SIDES[x].title for x in of_written)}",
    ]
    rows = []
    for model in models:
        rhats = [_worst(runs.of(model, side), lambda x: x["rhat"], ".3f") for side in sides]
        counts = [_worst(runs.of(model, side), lambda x: x["divergences"], "d") for side in sides]
        means = [_worst(runs.of(model, side), _distance, ".1f") for side in of_written]
        rows.append([f"`{model}`", *(" / ".join(x) for x in (rhats, counts, means))])
    return _table(header, rows)


def _distance(run: Run) -> float:
    return np.nan if run["furthest"] is None else run["furthest"][0]


def _others(runs: _Runs, models: Sequence[str], sides: Sequence[str]) -> str:
    header = ["model"]
    rows: list[list[str]] = [[f"`{model}`"] for model in models]
    for side in sides:
        header += [f"{SIDES[side].title}, per second", "per 1000 gradients"]
        for row, model in zip(rows, models, strict=True):
            row += [_cell(runs.of(model, side), x) for x in (per_second, per_gradient)]
    return _table(header, rows)


def _failures(runs: Sequence[Run]) -> list[str]:
    """Return a sentence about sides that gave nothing, if there are any."""
    found = dict.fromkeys(
        f"`{x['model']}` {SIDES[x['side']].title} ({x['failure']})" for x in runs if "failure" in x
    )
    return [f"Gave nothing: {'; '.join(found)}."] if found else []


def _measured(results: dict[str, Any]) -> str:
    """Say when, where and with which versions."""
    used = {}
    for run in results["runs"]:
        if "versions" in run:
            numbers = ", ".join(f"{x} {y}" for x, y in run["versions"].items() if y)
            used.setdefault(numbers, []).append(SIDES[run["side"]].title)
    by = "; ".join(f"{', '.join(dict.fromkeys(sides))}: {x}" for x, sides in used.items())
    chip = results["machine"]
    seeds = ", ".join(map(str, sorted({run["seed"] for run in results["runs"]})))
    return f"Medians over the seeds {seeds}, with the least and the largest. Measured on {results['date']}, one core of {chip['cpu']} ({chip['vector_bits']}-bit vectors). {by}."


def _cell(runs: Sequence[Run], of: Callable[[Run], float]) -> str:
    """Return a median with the least and the largest."""
    if not runs:
        return MISSING
    values = [of(x) for x in runs]
    if len(values) == 1:
        return digits(values[0])
    return f"{digits(median(values))} ({digits(min(values))} to {digits(max(values))})"


def _worst(runs: Sequence[Run], of: Callable[[Run], float], form: str) -> str:
    values = [of(x) for x in runs if "failure" not in x]
    values = [x for x in values if not np.isnan(x)]
    return format(max(values), form) if values else MISSING


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))


def publish(results: dict[str, Any]) -> None:
    """Write the tables of the docs."""
    PAGE.write_text(insert_table(PAGE.read_text(), tables(results), MARKER))
