"""Seconds from a table to its posterior: ``python -m benchmarks.tables [--largest 1e7] [--folder FOLDER]``.

Each run is a fresh process with empty caches. DuckDB makes the rows on the fly (engine ``duckdb``), or has written them to a Parquet file before (``parquet``, and ``polars``, ``pandas``
and ``dask``, which read the same file); ``memory`` is :func:`pymc_fastlogp.sample` of all rows as arrays. The stages:

- *build*: write the model, which reads the first rows and the levels;
- *reduce*: read the table, by the engine's ``GROUP BY`` or in batches;
- *compile*, without a model in the cache;
- *sample*: four chains of 1000 draws after 500 tuning draws;
- *query*: the same ``GROUP BY`` by DuckDB alone, for comparison, if the rows were grouped.

All runs of :data:`RUNS` are written to the JSON, the table of the docs and the plot. ``--largest`` leaves out runs with more rows, and ``--folder`` writes JSON and plot to another
folder. ``--models``, ``--engines`` and ``--rows`` measure other combinations, which are only printed. ``--report`` writes table and plot again.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.fresh_process import call
from benchmarks.machine import context
from benchmarks.report import (
    MISSING,
    ROOT,
    digits,
    machine_and_versions,
    markdown_table,
    write_table,
)
from benchmarks.tables_child import ENGINES, FROM_FILE, MODELS, measure, write

RESULTS = ROOT / "benchmarks" / "results" / "tables.json"
PAGE = ROOT / "docs" / "howto" / "tables.md"
PLOT = ROOT / "docs" / "_static" / "tables.png"
MARKER = "seconds of tables"
STAGES = ("build", "reduce", "compile", "sample")


class Run(NamedTuple):
    """Model, engine and number of rows of one measurement."""

    model: str
    engine: str
    rows: int


RUNS = [
    *(Run("counts", "memory", 10**k) for k in (6, 7)),
    *(Run("gaussian", "memory", 10**k) for k in (6, 7)),
    *(Run("counts", "parquet", 10**k) for k in (6, 7, 8)),
    *(Run("counts", "duckdb", 10**k) for k in (6, 7, 8, 9)),
    *(Run("gaussian", "duckdb", 10**k) for k in (6, 7, 8, 9)),
]


def measured(runs: Iterable[Run], threads: int) -> list[dict[str, Any]]:
    """Measure runs, and print each."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for run in runs:
            file = Path(folder) / f"{run.model}-{run.rows}.parquet"
            if run.engine in FROM_FILE and not file.exists():
                write(run.model, run.rows, str(file))
            try:
                record = call(measure, *run, str(file), threads)
            except RuntimeError as error:  # out of memory
                record = {**run._asdict(), "error": str(error)}
            found.append(record)
            print(" ".join(_cells(record)), flush=True)
    return found


def total(record: dict[str, Any]) -> float:
    """Return the seconds from the table to the posterior."""
    return sum(record[stage] for stage in STAGES)


def _cells(record: dict[str, Any]) -> list[str]:
    """Return the cells of a row of the table."""
    run = [record["model"], record["engine"], f"{record['rows']:.0e}"]
    if "error" in record:
        return [*run, record["error"]]
    seconds = [digits(record[stage]) for stage in STAGES]
    query = digits(record["query"]) if "query" in record else MISSING
    quality = f"{record['r_hat']:.3f} / {record['ess']:.0f}"
    cells = str(record.get("cells", MISSING))
    memory = digits(record["peak"] / 1e9)
    return [*run, cells, *seconds, digits(total(record)), query, memory, quality]


def page_section(results: dict[str, Any]) -> str:
    """Return the section of the docs, with table and plot."""
    names = ["model", "engine", "rows", "cells", *(f"{stage}, s" for stage in STAGES)]
    names += ["in all, s", "`GROUP BY` alone, s", "peak, GB", "largest R-hat / least ESS"]
    rows = [_cells(x) for x in results["runs"] if "error" not in x]
    return "\n".join(
        [
            "## Seconds until the posterior",
            "",
            f"![Seconds until the posterior against rows](../_static/{PLOT.name})",
            "",
            markdown_table(names, rows, n_left=2),
            "",
            f"Four chains, {results['threads']} threads of {machine_and_versions(results)}. `python -m benchmarks.tables` measures again.",
        ]
    )


def draw(results: dict[str, Any]) -> Any:
    """Return a figure of seconds against rows, one line a model and engine."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    ax = figure.subplots()
    runs = [x for x in results["runs"] if "error" not in x]
    for model, engine in dict.fromkeys((x["model"], x["engine"]) for x in runs):
        line = [x for x in runs if (x["model"], x["engine"]) == (model, engine)]
        style = "--" if engine == "memory" else "-"
        ax.loglog(
            [x["rows"] for x in line],
            [total(x) for x in line],
            style,
            marker="o",
            label=f"{model}, {engine}",
        )
    ax.set(xlabel="rows", ylabel="seconds from the table to the posterior")
    ax.grid(which="major", alpha=0.3)
    ax.legend()
    return figure


def publish(results: dict[str, Any]) -> None:
    """Write the table and the plot of the docs."""
    write_table(PAGE, page_section(results), MARKER)
    draw(results).savefig(PLOT, dpi=150)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables")
    parser.add_argument("--largest", type=float, help="rows of the largest runs")
    parser.add_argument(
        "--folder", type=Path, help="folder for JSON and plot, in place of the docs"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of DuckDB")
    parser.add_argument("--rows", nargs="+", type=float, help="rows of other combinations")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=["duckdb", "parquet"])
    parser.add_argument("--report", action="store_true", help="only write table and plot again")
    options = parser.parse_args()
    if options.report:
        publish(json.loads(RESULTS.read_text()))
        return
    if options.rows:
        combinations = product(options.models, options.engines, map(int, options.rows))
        measured((Run(*x) for x in combinations), options.threads)
        return
    if options.largest and not options.folder:
        parser.error("--largest needs --folder, since the docs have all runs")
    runs = [x for x in RUNS if x.rows <= (options.largest or x.rows)]
    results = {
        **context(),
        "threads": options.threads,
        "runs": measured(runs, options.threads),
    }
    content = json.dumps(results, indent=1) + "\n"
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
        (options.folder / RESULTS.name).write_text(content)
        draw(results).savefig(options.folder / PLOT.name, dpi=150)
        return
    RESULTS.write_text(content)
    publish(results)


if __name__ == "__main__":
    main()
