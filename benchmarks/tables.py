"""Seconds from a table to its posterior: ``python -m benchmarks.tables [--rows 1e6 1e7] [--models counts logit] [--engines duckdb parquet] [--threads 1]``.

Each combination runs in a process of its own. DuckDB makes the rows on the fly (engine ``duckdb``), or from a file on disk that was written before
(``parquet``, and ``polars``, ``pandas`` and ``dask``, which read the same file). The stages:

- *model*: write the model, which reads the first rows and the levels;
- *reduce*: ask the engine for the distinct rows with their counts;
- *compile*, with an empty cache of models;
- *sample*: four chains of 1000 draws after 500 tuning draws;
- *query*: the same ``GROUP BY`` by DuckDB alone, for comparison, if the rows were grouped.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
from rich.console import Console
from rich.table import Table

from benchmarks.fresh_process import environment

N_ZONES = 500
COLUMNS = f"""
CAST(hash(i) % {N_ZONES} AS INTEGER) AS zone,
CAST(hash(i + 7) % 2 AS TINYINT) AS night,
CAST(hash(i * 31 + 13) % (3 + hash(i) % {N_ZONES} % 5) AS TINYINT) AS tips,
CAST(hash(i + 19) % 4 AS TINYINT) AS rank,
CAST(hash(i + 23) % 60 AS DOUBLE) / 20 - 1.5 AS income,
CAST(hash(i + 29) % 1000 AS SMALLINT) AS place,
hash(i + 31) / 1.8446744073709552e19 AS distance,
hash(i + 37) / 1.8446744073709552e19 AS hours,
hash(i + 29) % 1000 / 500 + hash(i + 31) / 1.8446744073709552e19 + hash(i + 41) / 1.8446744073709552e19 AS fare
"""


def counts(rows: Any) -> pm.Model:
    """Poisson counts by zone and time of day."""
    with pm.Model(coords={"zone": range(N_ZONES)}) as model:
        mu, tau, b = pm.Normal("mu"), pm.HalfNormal("tau"), pm.Normal("b")
        a = pm.Normal("a", mu, tau, dims="zone")
        eta = a[rows["zone"]] + b * rows["night"]
        pm.Poisson("tips", pm.math.exp(eta), observed=rows["tips"])
    return model


def logit(rows: Any) -> pm.Model:
    """Binary outcomes by zone and rank."""
    with pm.Model(coords={"zone": range(N_ZONES)}) as model:
        tau = pm.HalfNormal("tau")
        a = pm.Normal("a", 0, tau, dims="zone")
        rank = pm.ZeroSumNormal("by_rank", shape=4)
        eta = a[rows["zone"]] + rank[rows["rank"]]
        pm.Bernoulli("night", logit_p=eta, observed=rows["night"])
    return model


def ordered(rows: Any) -> pm.Model:
    """Ordered outcomes by a rounded covariate."""
    with pm.Model() as model:
        cutpoints = pm.Normal(
            "cutpoints",
            sigma=2,
            shape=3,
            transform=pm.distributions.transforms.ordered,
            initval=np.linspace(-1, 1, 3),
        )
        eta = pm.Normal("b") * rows["income"] + pm.Normal("night") * rows["night"]
        pm.OrderedLogistic("rank", eta, cutpoints, observed=rows["rank"], compute_p=False)
    return model


def student_t(rows: Any) -> pm.Model:
    """Student-t errors of rounded values by time of day."""
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", shape=2), pm.HalfNormal("sigma")
        nu = pm.Gamma("nu", 2, 0.1)
        pm.StudentT("income", nu=nu, mu=mu[rows["night"]], sigma=sigma, observed=rows["income"])
    return model


def gaussian(rows: Any) -> pm.Model:
    """Continuous outcomes by 1000 places and two continuous covariates."""
    with pm.Model() as model:
        mu, tau, sigma = pm.Normal("mu"), pm.HalfNormal("tau"), pm.HalfNormal("sigma")
        a, b = pm.Normal("a", mu, tau, shape=1000), pm.Normal("b", shape=2)
        predictor = a[rows["place"]] + b[0] * rows["distance"] + b[1] * rows["hours"]
        pm.Normal("fare", predictor, sigma, observed=rows["fare"])
    return model


MODELS: dict[str, Callable[[Any], pm.Model]] = {
    x.__name__: x for x in (counts, logit, ordered, student_t, gaussian)
}
ENGINES = ("duckdb", "parquet", "polars", "pandas", "dask")


@dataclass
class Measured:
    """Numbers of one run: seconds of stages, and peak memory in megabytes."""

    model: str
    engine: str
    rows: int
    cells: int
    build: float
    reduce: float
    compile: float
    sample: float
    query: float
    peak: float

    @property
    def total(self) -> float:
        """Return the seconds from the table to the posterior."""
        return self.build + self.reduce + self.compile + self.sample


def source(engine: str, n_rows: int, file: Path, threads: int) -> Any:
    """Return the rows in an engine."""
    import duckdb

    if engine == "duckdb":
        connection = duckdb.connect()
        connection.execute(f"SET threads = {threads}")
        connection.execute(f"CREATE VIEW rides AS SELECT {COLUMNS} FROM range({n_rows}) t(i)")
        return connection.view("rides")
    match engine:
        case "parquet":
            return file
        case "polars":
            import polars

            return polars.scan_parquet(file)
        case "pandas":
            return duckdb.read_parquet(str(file)).df()
    import dask.dataframe

    return dask.dataframe.read_parquet(file)


def measure(model: str, engine: str, n_rows: int, file: Path, threads: int) -> Measured:
    """Run the stages in this process."""
    import duckdb
    import nutpie

    import pymc_fastlogp
    from pymc_fastlogp.models.table_rows import without_tables
    from pymc_fastlogp.tables.plan import Way

    rows = source(engine, n_rows, file, threads)
    times = [time.perf_counter()]
    table = pymc_fastlogp.table(rows)
    written = MODELS[model](table)
    times.append(time.perf_counter())
    reduced, tables = without_tables(written)
    times.append(time.perf_counter())
    compiled = pymc_fastlogp.compile_pymc_model(reduced)
    times.append(time.perf_counter())
    nutpie.sample(compiled, draws=1000, tune=500, chains=4, seed=1, progress_bar=False)
    times.append(time.perf_counter())
    # Kilobytes, on Linux.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    [read] = tables.values()
    query = 0.0
    if engine in ("duckdb", "parquet") and read.plan.way is Way.GROUPED:
        relation = rows if engine == "duckdb" else duckdb.read_parquet(str(file))
        names = ", ".join(read.columns)
        begin = time.perf_counter()
        relation.aggregate(f"{names}, count(*)", names).fetchall()
        query = time.perf_counter() - begin
    stages = np.diff(times).tolist()
    return Measured(model, engine, n_rows, read.rows.n_cells, *stages, query, peak)


def in_process(model: str, engine: str, n_rows: int, file: Path, threads: int) -> Measured:
    """Run the stages in a process of its own, with an empty cache of models."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.tables", "--child", model, engine]
        done = subprocess.run(
            [*command, str(n_rows), str(file), str(threads)],
            env=environment(folder, kept=""),
            check=True,
            stdout=subprocess.PIPE,
        )
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def write(n_rows: int, file: Path) -> None:
    """Write the rows to a Parquet file."""
    import duckdb

    duckdb.sql(f"SELECT {COLUMNS} FROM range({n_rows}) t(i)").write_parquet(str(file))


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", type=float, default=[1e6, 1e7])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=["duckdb", "parquet"])
    parser.add_argument("--threads", type=int, default=1, help="of DuckDB, if it makes the rows")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        model, engine, n_rows, path, threads = options.child
        print(json.dumps(asdict(measure(model, engine, int(n_rows), Path(path), int(threads)))))
        return
    shown = Table("model", "engine", "rows", "cells", "build", "reduce", "compile", "sample")
    for name in ("total", "query", "peak MB"):
        shown.add_column(name)
    with tempfile.TemporaryDirectory() as folder:
        for n_rows in map(int, options.rows):
            file = Path(folder) / f"{n_rows}.parquet"
            if {*options.engines} != {"duckdb"}:
                write(n_rows, file)
            for model in options.models:
                for engine in options.engines:
                    x = in_process(model, engine, n_rows, file, options.threads)
                    stages = (x.build, x.reduce, x.compile, x.sample, x.total, x.query)
                    seconds = [f"{s:.2f}" for s in stages]
                    shown.add_row(
                        model, engine, f"{n_rows:.0e}", str(x.cells), *seconds, f"{x.peak:.0f}"
                    )
    Console(width=120).print(shown)


if __name__ == "__main__":
    main()
