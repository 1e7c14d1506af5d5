"""The user's wait, in fresh processes: ``python -m benchmarks.first_draw [--model NAME ...] [--rounds N]``.

For each side and model a process imports PyMC, the plugin unless it is off, and nutpie, makes the model, and samples: once for one draw, so
that the call is compilation and little else, and once for 4 chains of 1000 + 1000 draws on two cores. The first process of a side finds an empty cache on disk, the next ones that of
those before. Sides run in turn. Figures are medians over rounds, each with empty folders again, in seconds by the clock. Imports are apart: nutpie imports
ArviZ, matplotlib and JAX for all sides alike.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

from rich.progress import track

Results = dict[str, dict[str, dict[str, float]]]

SIDES = ("off", "import only", "sample", "jax")
STATES = ("cold", "warm")
LENGTHS = {
    "first draw": {"draws": 1, "tune": 1, "chains": 1, "cores": 1},
    "whole run": {"draws": 1000, "tune": 1000, "chains": 4, "cores": 2},
}
MODELS = ("radon", "eight_schools", "lkj_slopes", "mrp_10k")
RESULTS = Path(__file__).parent / "results" / "first_draw.json"
PICTURE = Path(__file__).parents[1] / "docs" / "_static" / "first_draw.png"


def child(arguments: argparse.Namespace) -> dict[str, float]:
    """Import, make the model, sample; return the seconds of the imports and of the call."""
    start = time.perf_counter()
    import pymc as pm

    if arguments.side != "off":
        import pymc_fastlogp
    import nutpie  # noqa: F401

    imported = time.perf_counter()
    from benchmarks.suite import case

    model = case(arguments.model[0]).make()
    options = {"model": model, "random_seed": 1, "progressbar": False, "quiet": True}
    options |= LENGTHS[arguments.length]
    begin = time.perf_counter()
    match arguments.side:
        case "sample":
            pymc_fastlogp.sample(**options)
        case "jax":
            pm.sample(**options, nuts_sampler="nutpie", compile_kwargs={"backend": "jax"})
        case _:
            pm.sample(**options)
    return {"imports": imported - start, "call": time.perf_counter() - begin}


def run(model: str, side: str, length: str, folder: str) -> dict[str, float]:
    """Run one child with a cache folder of its own."""
    flags = f"{os.environ.get('PYTENSOR_FLAGS', '')},base_compiledir={folder}".lstrip(",")
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.first_draw", "--child"]
    done = subprocess.run(
        [*command, "--side", side, "--model", model, "--length", length],
        env=os.environ | {"PYTENSOR_FLAGS": flags},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def measure(models: list[str], rounds: int) -> Results:
    """Return for each model, and each side cold and warm, the seconds of imports, first draw and whole call."""
    found: dict[str, dict[str, list[dict[str, float]]]] = defaultdict(lambda: defaultdict(list))
    for _, model in track([(r, m) for r in range(rounds) for m in models], "fresh processes"):
        for side in SIDES:
            with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
                for state in STATES:
                    first = run(model, side, "first draw", folder)
                    whole = run(model, side, "whole run", other)
                    found[model][f"{side}, {state}"].append(
                        {
                            "imports": (first["imports"] + whole["imports"]) / 2,
                            "first draw": first["call"],
                            "whole call": whole["call"],
                        }
                    )
    return {
        model: {
            side: {name: median(run[name] for run in runs) for name in runs[0]}
            for side, runs in sides.items()
        }
        for model, sides in found.items()
    }


def markdown(results: Results) -> str:
    """Return a table of the first draw and one of the whole wait."""
    columns = [f"{side}, {state}" for state in STATES for side in SIDES]
    lines = []
    for title, seconds in (
        ("From the call to the first draw, s", lambda t: t["first draw"]),
        ("Imports and 4 chains x (1000 + 1000) draws, s", lambda t: t["imports"] + t["whole call"]),
    ):
        lines += [f"{title}:", "", f"| model | {' | '.join(columns)} |"]
        lines += ["| --- |" + " ---: |" * len(columns)]
        for model, sides in results.items():
            cells = (f"{seconds(sides[column]):.3g}" for column in columns)
            lines.append(f"| {model} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def plot(results: Results, model: str, path: Path) -> None:
    """Draw the wait for the posterior of one model as stacked bars."""
    import matplotlib.pyplot as plt

    columns = [f"{side}, {state}" for state in STATES for side in SIDES]
    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    left = [0.0] * len(columns)
    for part, seconds in (
        ("imports", lambda t: t["imports"]),
        ("to the first draw", lambda t: t["first draw"]),
        ("the other draws", lambda t: max(t["whole call"] - t["first draw"], 0.0)),
    ):
        widths = [seconds(results[model][column]) for column in columns]
        axes.barh(columns, widths, left=left, label=part)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for column, end in zip(columns, left, strict=True):
        axes.annotate(f" {end:.1f} s", (end, column), va="center")
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12 * max(left))
    axes.set_xlabel(f"seconds until the posterior of {model}, 4 chains x (1000 + 1000), two cores")
    axes.legend()
    figure.savefig(path, dpi=150)


def main() -> None:
    """Measure, write and print, or be a child."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="*", default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--side", choices=SIDES)
    parser.add_argument("--length", choices=LENGTHS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(arguments)))
        return
    results = measure(arguments.model, arguments.rounds)
    RESULTS.write_text(json.dumps(results, indent=1))
    plot(results, arguments.model[0], PICTURE)
    print(markdown(results))


if __name__ == "__main__":
    main()
