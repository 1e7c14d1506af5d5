"""Models over tables, and the stages of one run, in the process of :mod:`benchmarks.tables` that measures it."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm

from benchmarks.machine import process_memory

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
# Columns that a model reads.
READ = {
    "counts": "zone, night, tips",
    "logit": "zone, rank, night",
    "ordered": "income, night, rank",
    "student_t": "income, night",
    "gaussian": "place, distance, hours, fare",
}
DRAWS, TUNE, CHAINS = 1000, 500, 4
# Frames of the file that DuckDB wrote, and the rows as arrays.
FROM_FILE = ("parquet", "polars", "pandas", "dask")
ENGINES = ("duckdb", *FROM_FILE, "memory")


def source(model: str, engine: str, n_rows: int, file: str, threads: int) -> Any:
    """Return the rows that a model reads in an engine, or as arrays."""
    import duckdb

    match engine:
        case "parquet":
            return file
        case "polars":
            import polars

            return polars.scan_parquet(file)
        case "pandas":
            return duckdb.read_parquet(file).df()
        case "dask":
            import dask.dataframe

            return dask.dataframe.read_parquet(file)
    connection = duckdb.connect()
    connection.execute(f"SET threads = {threads}")
    connection.execute(f"CREATE VIEW rides AS SELECT {COLUMNS} FROM range({n_rows}) t(i)")
    rides = connection.view("rides")
    return rides if engine == "duckdb" else rides.select(READ[model]).fetchnumpy()


def write(model: str, n_rows: int, file: str) -> None:
    """Write the rows that a model reads to a Parquet file."""
    import duckdb

    rows = duckdb.sql(f"SELECT {COLUMNS} FROM range({n_rows}) t(i)")
    rows.select(READ[model]).write_parquet(file)


def measure(model: str, engine: str, n_rows: int, file: str, threads: int) -> dict[str, Any]:
    """Return cells, seconds of each stage, peak memory in bytes, and the worst R-hat and effective sample size."""
    import arviz as az
    import nutpie

    import pymc_fastlogp
    from pymc_fastlogp.models.table_rows import without_tables

    rows = source(model, engine, n_rows, file, threads)
    times = [time.perf_counter()]
    written = MODELS[model](rows if engine == "memory" else pymc_fastlogp.table(rows))
    times.append(time.perf_counter())
    reduced, tables = without_tables(written)
    times.append(time.perf_counter())
    compiled = pymc_fastlogp.compile_pymc_model(reduced)
    times.append(time.perf_counter())
    options = {"draws": DRAWS, "tune": TUNE, "chains": CHAINS, "progress_bar": False}
    idata = nutpie.sample(compiled, seed=1, **options)
    times.append(time.perf_counter())
    peak = process_memory("VmHWM")
    r_hat, ess = az.rhat(idata), az.ess(idata)
    found = {
        "model": model,
        "engine": engine,
        "rows": n_rows,
        "peak": peak,
        "r_hat": max(float(x.max()) for x in r_hat.data_vars.values()),
        "ess": min(float(x.min()) for x in ess.data_vars.values()),
    }
    stages = np.diff(times).tolist()
    found |= zip(("build", "reduce", "compile", "sample"), stages, strict=True)
    for read in tables.values():
        if read.rows.n_rows != n_rows:
            raise ValueError(f"{read.rows.n_rows} rows were read, not {n_rows}")
        found["cells"] = read.rows.n_cells
        if engine in ("duckdb", "parquet") and read.plan.is_of_columns:
            found["query"] = _seconds_of_query(rows, ", ".join(read.columns))
    return found


def _seconds_of_query(rows: Any, names: str) -> float:
    """Return the seconds of the ``GROUP BY`` of DuckDB alone."""
    import duckdb

    relation = duckdb.read_parquet(rows) if isinstance(rows, str) else rows
    begin = time.perf_counter()
    relation.aggregate(f"{names}, count(*)", names).fetchall()
    return time.perf_counter() - begin
