"""Seconds from a table to its posterior: ``python -m benchmarks.tables [--models ...] [--engines ...] [--rows ...]``.

Each run is a fresh process with empty caches. DuckDB makes the rows on the fly (engine ``duckdb``), or has written them to a Parquet file before (``parquet``, and ``polars``, ``pandas``
and ``dask``, which read the same file). Without a table, and with rows that DuckDB makes, too:

- ``memory``: :func:`pymc_fastlogp.sample` of all rows as arrays;
- ``pm.sample``: PyMC alone, with all rows as arrays;
- ``SQL, pm.sample`` and ``SQL, stanli``: PyMC alone or stanli, with a log density of sums that the user computes in DuckDB: :mod:`benchmarks.tables_by_hand`.

The stages are

- *reduce*: read the table, by the engine's ``GROUP BY`` or in batches, or load all rows;
- *build*: write the model, which reads the first rows and the levels of a table;
- *compile*, without a model in the cache;
- *sample*: four chains of 1000 draws after 500 tuning draws;
- *query*: the same ``GROUP BY`` by DuckDB alone, for comparison, if the rows were grouped.

A run ends after :data:`LIMIT` seconds; runs of more rows are then left out. The runs of :data:`RUNS` that ``--models``, ``--engines`` and ``--rows`` select are written to the JSON,
in which other runs stay as they are, to the table of the docs and the plot. ``--folder`` writes JSON and plot to another folder. ``--report`` writes table and plot again.
"""

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable
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
from benchmarks.tables_child import FROM_FILE, MODELS, WAYS, measure, write

RESULTS = ROOT / "benchmarks" / "results" / "tables.json"
PAGE = ROOT / "docs" / "howto" / "tables.md"
PLOT = ROOT / "docs" / "_static" / "tables.png"
MARKER = "seconds of tables"
STAGES = ("build", "reduce", "compile", "sample")
# Models of the plot.
DRAWN = ("counts", "gaussian")


class Run(NamedTuple):
    """Model, engine and number of rows of one measurement."""

    model: str
    engine: str
    rows: int


RUNS = [
    *(Run("counts", "pm.sample", 10**k) for k in (5, 6, 7)),
    *(Run("gaussian", "pm.sample", 10**k) for k in (5, 6, 7)),
    *(Run("counts", "SQL, pm.sample", 10**k) for k in (6, 7, 8)),
    *(Run("gaussian", "SQL, pm.sample", 10**k) for k in (6, 7, 8)),
    *(Run("counts", "SQL, stanli", 10**k) for k in (6, 7, 8)),
    *(Run("gaussian", "SQL, stanli", 10**k) for k in (6, 7, 8)),
    *(Run("counts", "memory", 10**k) for k in (6, 7)),
    *(Run("gaussian", "memory", 10**k) for k in (6, 7)),
    *(Run("counts", "parquet", 10**k) for k in (6, 7, 8)),
    *(Run("counts", engine, 10**7) for engine in ("polars", "pandas", "dask")),
    *(Run("counts", "duckdb", 10**k) for k in (6, 7, 8, 9)),
    *(Run("gaussian", "duckdb", 10**k) for k in (6, 7, 8, 9)),
    *(Run(x, "duckdb", 10**7) for x in ("negative_binomial", "logit", "ordered", "student_t")),
    Run("slopes", "duckdb", 10**7),
]
# Seconds after which a run ends.
LIMIT = 900


def measured(runs: Iterable[Run], threads: int) -> list[dict[str, Any]]:
    """Measure runs, with more rows after fewer rows, and print each."""
    found = []
    ended = set[tuple[str, str]]()
    with tempfile.TemporaryDirectory() as folder:
        for run in runs:
            if (run.model, run.engine) in ended:
                continue
            file = Path(folder) / f"{run.model}-{run.rows}.parquet"
            if run.engine in FROM_FILE and not file.exists():
                write(run.model, run.rows, str(file))
            record: dict[str, Any]
            try:
                record = call(measure, *run, str(file), threads, timeout=LIMIT)
            except subprocess.TimeoutExpired:
                record = {**run._asdict(), "error": f"more than {LIMIT} s"}
            except RuntimeError as error:
                record = {**run._asdict(), "error": _reason(str(error))}
            if "error" in record:
                ended.add((run.model, run.engine))
            found.append(record)
            print(" ".join(_cells(record)), flush=True)
    return found


def _reason(error: str) -> str:
    """Return the reason why a process failed. Linux kills a process without memory by signal 9."""
    return "out of memory" if "status -9" in error or "MemoryError" in error else error


def total(record: dict[str, Any]) -> float:
    """Return the seconds from the table to the posterior."""
    return sum(record[stage] for stage in STAGES)


def _cells(record: dict[str, Any]) -> list[str]:
    """Return the cells of a row of the table."""
    run = [record["model"], record["engine"], f"{record['rows']:.0e}"]
    if "error" in record:
        return [*run, *[MISSING] * (1 + len(STAGES)), record["error"], *[MISSING] * 3]
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
    rows = [_cells(x) for x in results["runs"]]
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
    """Return a figure of seconds against rows, one line a way."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.subplots(1, len(DRAWN), sharey=True)
    for model, ax in zip(DRAWN, axes, strict=True):
        runs = [x for x in results["runs"] if x["model"] == model and "error" not in x]
        for engine in dict.fromkeys(x["engine"] for x in runs):
            line = [x for x in runs if x["engine"] == engine]
            style = "--" if engine in WAYS else "-"
            seconds = [total(x) for x in line]
            ax.loglog([x["rows"] for x in line], seconds, style, marker="o", label=engine)
        ax.set(title=model, xlabel="rows")
        ax.grid(which="major", alpha=0.3)
        ax.legend()
    axes[0].set_ylabel("seconds from the table to the posterior")
    return figure


def publish(results: dict[str, Any]) -> None:
    """Write the table and the plot of the docs."""
    write_table(PAGE, page_section(results), MARKER)
    draw(results).savefig(PLOT, dpi=150)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables")
    engines = [*dict.fromkeys(x.engine for x in RUNS)]
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS])
    parser.add_argument("--engines", nargs="+", choices=engines, default=engines)
    parser.add_argument("--rows", nargs="+", type=float, default=[x.rows for x in RUNS])
    parser.add_argument(
        "--folder", type=Path, help="folder for JSON and plot, in place of the docs"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of DuckDB and chains")
    parser.add_argument("--report", action="store_true", help="only write table and plot again")
    options = parser.parse_args()
    if options.report:
        publish(json.loads(RESULTS.read_text()))
        return
    path = (options.folder or RESULTS.parent) / RESULTS.name
    path.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(path.read_text())["runs"] if path.exists() else []
    selected = [
        x
        for x in RUNS
        if x.model in options.models and x.engine in options.engines and x.rows in options.rows
    ]
    runs = updated(before, selected, measured(selected, options.threads))
    results = {**context(), "threads": options.threads, "runs": runs}
    path.write_text(json.dumps(results, indent=1) + "\n")
    if options.folder:
        draw(results).savefig(options.folder / PLOT.name, dpi=150)
    else:
        publish(results)


def updated(
    before: Iterable[dict[str, Any]], selected: Iterable[Run], found: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the records of runs in the order of :data:`RUNS`, with new ones in place of those before."""
    kept = {_run_of(x): x for x in before}
    for run in selected:
        kept.pop(run, None)
    kept |= {_run_of(x): x for x in found}
    return [kept[x] for x in RUNS if x in kept]


def _run_of(record: dict[str, Any]) -> Run:
    return Run(record["model"], record["engine"], record["rows"])


if __name__ == "__main__":
    main()
