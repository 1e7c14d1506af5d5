"""Command line: ``python -m benchmarks.gallery [NAME ...] [--missing]`` times the gallery, one core, and writes its page.

Results are kept in ``benchmarks/results/gallery.json`` model by model, so that a run that was interrupted goes on with
``--missing``, and a few models can be measured again by name. The page is written once all models have a result.
The first run on a machine takes longer: with the plugin off, Numba compiles what later runs find on disk.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.fresh_process import ON_ONE_CORE
from benchmarks.gallery import MODELS, report
from benchmarks.gallery.measure import LINE
from benchmarks.machine import context
from benchmarks.runner import ROOT, how_it_ended
from pymc_fastlogp.benchmarking.pairing import pinned

# A process is renewed after as many models, since Numba frees no code.
BATCH = 8


def main() -> int:
    """Measure the named models, or all of them."""
    arguments = _parse()
    results = _kept() if arguments.names or arguments.missing else {"models": {}}
    names = arguments.names or [
        name for name in MODELS if not (arguments.missing and name in results["models"])
    ]
    results |= context()
    for record in _measured(names):
        results["models"][record.pop("name")] = record
        # After each, so that an interrupted run is not lost.
        report.RESULTS.write_text(json.dumps(_in_order(results), indent=1) + "\n")

    console = Console()
    console.print(report.rich_summary(results, names))
    if all(name in results["models"] for name in MODELS):
        report.publish(results)
    failed = [name for name in names if not report.is_measured(results["models"][name])]
    for name in failed:
        console.print(f"{name}: {results['models'][name]['failures']}", style="red", markup=False)
    return int(bool(failed))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gallery", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these models")
    parser.add_argument("--missing", action="store_true", help="only models without a result")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(MODELS))
    if unknown:
        sys.exit(f"No such model: {', '.join(unknown)}. There are: {', '.join(MODELS)}.")
    return arguments


def _kept() -> dict[str, Any]:
    """Return the results of earlier runs, without models that are gone."""
    if not report.RESULTS.exists():
        return {"models": {}}
    results: dict[str, Any] = json.loads(report.RESULTS.read_text())
    results["models"] = {n: record for n, record in results["models"].items() if n in MODELS}
    return results


def _in_order(results: dict[str, Any]) -> dict[str, Any]:
    models = results["models"]
    return results | {"models": {name: models[name] for name in MODELS if name in models}}


def _measured(names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the record of each model, a child process for a few of them."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(names))
        left = list(names)
        while left:
            for record in _in_child(left[:BATCH]):
                left.remove(record["name"])
                yield record
                progress.update(task, advance=1, description=left[0] if left else "")


def _in_child(names: list[str]) -> Iterator[dict[str, Any]]:
    """Measure models in one process, up to the first that ends it, which gets how it ended."""
    command = [sys.executable, "-m", "benchmarks.gallery.measure", *names]
    left = list(names)
    with tempfile.TemporaryFile("w+") as errors:
        # The child inherits the core, with every thread that its packages start on import.
        with pinned():
            child = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | ON_ONE_CORE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        with child:
            for line in child.stdout or ():
                if line.startswith(LINE):
                    yield json.loads(line.removeprefix(LINE))
                    left.pop(0)
        if left:
            errors.seek(0)
            how = how_it_ended(child.returncode, errors.read())
            yield {"name": left[0], "failures": {"evaluate": how}}


if __name__ == "__main__":
    sys.exit(main())
