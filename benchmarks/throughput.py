"""Effective samples per second of the whole wait: models as written, written the other way by hand, and parametrised.

``python -m benchmarks.throughput [--model NAME ...] [--side NAME ...] [--seed N ...] [--output FILE]``; ``--table FILE`` prints the table of
docs/parametrise.md from what another run has written.

Each side runs in a process of its own without models or kernels on disk, and starts when the model is there: compilation, pilot and draws count, imports don't. What counts
is the smaller of the bulk and tail effective sample sizes of ArviZ, of the worst of all quantities that both ways of writing the model have.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from statistics import median
from tempfile import gettempdir
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import other_ways
from benchmarks.suite import case

SIDES = ("written", "other", "parametrise")
MODELS = (
    "eight_schools",
    "radon",
    "radon_10k",
    "radon_100k",
    "radon_1m",
    "varying_slope",
    "varying_slope_100k",
    "sleepstudy",
    "lkj_slopes",
    "lkj_slopes_100k",
    "poisson",
    "negative_binomial",
    "student_t",
    "ordered_logit",
    "epilepsy",
    "contraception",
    "mrp_10k",
    "mrp_200k",
    "irt_2pl",
    "verbal_aggression",
    "insteval",
)
FOLDER = Path(gettempdir()) / "pymc_fastlogp_throughput"
# Of a process, in seconds.
PATIENCE = 900
# Differences of posterior means that chance explains, in standard errors of the difference.
UNSUSPICIOUS = 5.0


def main() -> None:
    """Measure and print a table."""
    arguments = _parse()
    if arguments.table:
        print(markdown(json.loads(arguments.table.read_text())))
        return
    results: list[dict[str, Any]] = []
    for name in arguments.model or MODELS:
        for seed in arguments.seed:
            for side in arguments.side:
                if side == "other" and not hasattr(other_ways, case(name).module):
                    continue
                results.append(
                    {"model": name, "side": side, "seed": seed, **_run(name, side, seed)}
                )
                print(_line(results[-1]), file=sys.stderr, flush=True)
                if arguments.output:
                    arguments.output.write_text(json.dumps(results, indent=1))
    console = Console(width=150)
    console.print(table(results))
    for line in disagreements(results):
        console.print(line)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput")
    parser.add_argument("--model", nargs="+", action="extend", default=[], choices=MODELS)
    parser.add_argument("--side", nargs="+", default=SIDES, choices=SIDES)
    parser.add_argument("--seed", nargs="+", type=int, default=[1])
    parser.add_argument("--output", type=Path, help="JSON of all that was measured")
    parser.add_argument("--table", type=Path, help="measure nothing, print a table of such a JSON")
    return parser.parse_args()


def _run(name: str, side: str, seed: int) -> dict[str, Any]:
    """Return what a process of its own measures."""
    command = [sys.executable, "-m", "benchmarks.throughput_child", name, side, str(seed)]
    # PyTensor's own cache stays: it has the machine code of functions that all models share.
    rmtree(FOLDER / "pymc_fastlogp", ignore_errors=True)
    flags = f"{os.environ.get('PYTENSOR_FLAGS', '')},base_compiledir={FOLDER}".lstrip(",")
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTENSOR_FLAGS": flags},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"more than {PATIENCE} s"}
    except subprocess.CalledProcessError as error:
        return {"failure": error.stderr.strip().rpartition("\n")[2]}
    return json.loads(done.stdout.strip().rpartition("\n")[2])


def per_second(result: dict[str, Any]) -> float:
    """Return effective samples per second of the whole wait, 0 of a side that failed."""
    if "failure" in result:
        return 0.0
    return _effective(result) / (result["compilation"] + result["draws"])


def _line(result: dict[str, Any]) -> str:
    head = f"{result['model']} {result['side']} {result['seed']}:"
    if "failure" in result:
        return f"{head} {result['failure']}"
    return (
        f"{head} {per_second(result):.1f}/s, bulk {result['bulk']:.0f}, tail {result['tail']:.0f} ({result['slowest']}),"
        f" wait {result['compilation']:.2f} + {result['draws']:.2f} s ({result['processor']:.2f} s of a processor), {result['gradients']} gradients,"
        f" {result['divergences']} divergences, R-hat {result['rhat']:.3f}"
    )


def table(results: list[dict[str, Any]]) -> Table:
    """Return medians over seeds of effective samples per second, and of divergences."""
    shown = Table("model", *SIDES, "parametrise / written", "/ better", "divergences")
    ratios = []
    for name in dict.fromkeys(result["model"] for result in results):
        of = {
            side: [x for x in results if x["model"] == name and x["side"] == side] for side in SIDES
        }
        speeds = {side: median(map(per_second, xs)) for side, xs in of.items() if xs}
        cells = [f"{speeds[side]:.3g}" if side in speeds else "" for side in SIDES]
        by_hand = [speeds[side] for side in ("written", "other") if side in speeds]
        if "parametrise" in speeds and speeds.get("written"):
            ratios.append(speeds["parametrise"] / speeds["written"])
            cells += [f"{ratios[-1]:.3g}", f"{speeds['parametrise'] / max(by_hand):.3g}"]
        else:
            cells += ["", ""]
        counts = [sum(x.get("divergences", 0) for x in of[side]) for side in SIDES]
        shown.add_row(name, *cells, " / ".join(map(str, counts)))
    if ratios:
        shown.caption = f"median of parametrise / written: {median(ratios):.3g}"
    return shown


HEAD = """\
| model | effective samples: written | by hand | parametrise | divergences | per second of the wait: written | by hand | parametrise | parametrise : written | : the better | : written, without compilation |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


def markdown(results: list[dict[str, Any]]) -> str:
    """Return the table of the docs, medians over seeds, with the medians of the ratios below."""
    lines, ratios = [HEAD], []
    for name in dict.fromkeys(x["model"] for x in results):
        of = {
            side: [x for x in results if (x["model"], x["side"]) == (name, side)] for side in SIDES
        }
        sizes = [_median(of[side], _effective) for side in SIDES]
        speeds = [_median(of[side], per_second) for side in SIDES]
        draws = [_median(of[side], lambda x: _effective(x) / x["draws"]) for side in SIDES]
        counts = [_median(of[side], lambda x: x.get("divergences", 0)) for side in SIDES]
        ratios.append(
            (speeds[2] / speeds[0], speeds[2] / np.nanmax(speeds[:2]), draws[2] / draws[0])
        )
        cells = [
            f"`{name}`",
            *(_cell(x, ".0f") for x in sizes),
            " / ".join(_cell(x, ".0f") for x in counts),
            *(_cell(x, ".3g" if x < 100 else ".0f") for x in speeds),
            *(f"{x:.2f}" for x in ratios[-1]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    written, better, without = (median(x) for x in zip(*ratios, strict=True))
    as_good = sum(x[1] >= 1 for x in ratios)
    lines.append(
        f"\nMedians: {written:.2f} of written, {better:.2f} of the better, {without:.2f} without compilation;"
        f" as good as the better: {as_good} of {len(ratios)}; least: {min(ratios)[0]:.2f}."
    )
    return "\n".join(lines)


def _effective(result: dict[str, Any]) -> float:
    return 0.0 if "failure" in result else float(min(result["bulk"], result["tail"]))


def _median(results: list[dict[str, Any]], of: Callable[[dict[str, Any]], float]) -> float:
    return median(map(of, results)) if results else float("nan")


def _cell(x: float, form: str) -> str:
    return "-" if np.isnan(x) else format(x, form)


def disagreements(results: list[dict[str, Any]]) -> list[str]:
    """Return the quantities whose posterior means differ by more than chance between a model as written and parametrised, where both have converged."""
    lines = []
    for result in results:
        of_written = [
            x
            for x in results
            if (x["model"], x["seed"], x["side"]) == (result["model"], result["seed"], "written")
        ]
        if result["side"] == "written" or not of_written or "failure" in result | of_written[0]:
            continue
        worst = _worst_difference(of_written[0], result)
        if worst[0] > UNSUSPICIOUS:
            lines.append(
                f"{result['model']} {result['side']}: {worst[1]} differs by {worst[0]:.1f}"
            )
    return lines


def _worst_difference(one: dict[str, Any], other: dict[str, Any]) -> tuple[float, str]:
    """Return the largest difference of means in standard errors, taking the smallest effective size for all."""
    sizes = [min(max(x["bulk"], 1.0), 4000.0) for x in (one, other)]
    found = [(0.0, "")]
    for name in one["means"].keys() & other["means"].keys():
        error = np.hypot(
            *(x["deviations"][name] / np.sqrt(n) for x, n in zip((one, other), sizes, strict=True))
        )
        if error > 0:
            found.append((abs(one["means"][name] - other["means"][name]) / error, name))
    return max(found)


if __name__ == "__main__":
    main()
