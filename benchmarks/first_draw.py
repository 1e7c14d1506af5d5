"""The user's wait, in fresh processes: ``python -m benchmarks.first_draw [--model NAME ...] [--draws N --tune N --chains N]``.

For each side and model a process imports PyMC, then the plugin unless it is off, makes the model, and samples: one draw by default,
so that the call is compilation and little else. The first process of a side finds an empty cache on disk, the next ones that of those before.
Sides run in turn. Figures are medians over rounds; a cold round needs an empty folder again. ``seconds`` is the time of the call by the clock, ``processor``
the time of all its threads. Imports of PyMC, the plugin and nutpie are apart: nutpie imports ArviZ, matplotlib and JAX for all sides alike.
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

from rich.console import Console
from rich.progress import track
from rich.table import Table

SIDES = ("off", "import only", "sample", "jax")
MODELS = ("eight_schools", "radon", "lkj_slopes", "irt_2pl", "mrp_10k", "negative_binomial")
RESULTS = Path(__file__).parent / "results" / "first_draw.json"


def child(arguments: argparse.Namespace) -> dict[str, float]:
    """Import, make the model, sample; return the times of each."""
    seconds = {}
    last = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal last
        now = time.perf_counter()
        seconds[name] = now - last
        last = now

    import pymc as pm

    lap("import pymc")
    if arguments.side != "off":
        import pymc_fastlogp

        lap("import pymc_fastlogp")
    from benchmarks.suite import case

    model = case(arguments.model[0]).make()
    lap("model")
    import nutpie  # noqa: F401

    lap("import nutpie")
    processor = time.process_time()
    options = {"draws": arguments.draws, "tune": arguments.tune, "chains": arguments.chains}
    quiet = {"random_seed": 1, "progressbar": False, "quiet": True, "cores": arguments.cores}
    match arguments.side:
        case "sample":
            pymc_fastlogp.sample(model=model, **options, **quiet)
        case "jax":
            pm.sample(
                model=model,
                **options,
                **quiet,
                nuts_sampler="nutpie",
                compile_kwargs={"backend": "jax"},
            )
        case _:
            pm.sample(model=model, **options, **quiet)
    lap("seconds")
    return {**seconds, "processor": time.process_time() - processor}


def run(arguments: argparse.Namespace, model: str, side: str, folder: str) -> dict[str, float]:
    """Run one child with a cache folder of its own."""
    flags = f"{os.environ.get('PYTENSOR_FLAGS', '')},base_compiledir={folder}".lstrip(",")
    sizes = [f"--{x}={getattr(arguments, x)}" for x in ("draws", "tune", "chains", "cores")]
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.first_draw", "--child"]
    done = subprocess.run(
        [*command, "--side", side, "--model", model, *sizes],
        env=os.environ | {"PYTENSOR_FLAGS": flags},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def measure(arguments: argparse.Namespace) -> dict[str, dict[str, dict[str, float]]]:
    """Return for each model, and each side cold and warm, the median of each time."""
    found: dict[str, dict[str, list[dict[str, float]]]] = defaultdict(lambda: defaultdict(list))
    tasks = [(r, m) for r in range(arguments.rounds) for m in arguments.model]
    for _, model in track(tasks, "fresh processes"):
        folders = {side: tempfile.TemporaryDirectory() for side in SIDES}
        for state in ("cold", "warm"):
            for side, folder in folders.items():
                found[model][f"{side}, {state}"].append(run(arguments, model, side, folder.name))
        for folder in folders.values():
            folder.cleanup()
    return {
        model: {
            side: {name: median(run[name] for run in runs) for name in runs[0]}
            for side, runs in sides.items()
        }
        for model, sides in found.items()
    }


def table(results: dict[str, dict[str, dict[str, float]]], what: str) -> Table:
    """Return one time of all models and sides."""
    sides = [f"{side}, {state}" for state in ("cold", "warm") for side in SIDES]
    made = Table("model", *sides, title=what)
    for model, times in results.items():
        made.add_row(model, *(f"{times[side][what]:.2f}" for side in sides))
    return made


def main() -> None:
    """Measure and print, or be a child."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="*", default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    for name, default in (("draws", 1), ("tune", 1), ("chains", 1), ("cores", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--side", choices=SIDES)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(arguments)))
        return
    results = measure(arguments)
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=1))
    for what in ("seconds", "processor"):
        Console().print(table(results, what))


if __name__ == "__main__":
    main()
