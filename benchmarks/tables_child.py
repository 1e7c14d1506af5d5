"""Models over tables, and the stages of one run, in the process of :mod:`benchmarks.tables` that measures it."""

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from benchmarks.machine import process_memory
from benchmarks.tables_by_hand import BY_HAND

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
hash(i + 29) % 1000 / 500 + hash(i + 31) / 1.8446744073709552e19 + hash(i + 41) / 1.8446744073709552e19 AS fare,
hash(i + 29) % 1000 / 500 + (5 + hash(i + 29) % 10) / 10 * hash(i + 31) / 1.8446744073709552e19 + hash(i + 41) / 1.8446744073709552e19 AS toll
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
        # The zones of the made data hardly differ, so that centered effects would be a funnel.
        a = tau * pm.Normal("standard", dims="zone")
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


def negative_binomial(rows: Any) -> pm.Model:
    """Overdispersed counts by zone and time of day."""
    with pm.Model(coords={"zone": range(N_ZONES)}) as model:
        mu, tau, alpha = pm.Normal("mu"), pm.HalfNormal("tau"), pm.Gamma("alpha", 2, 0.5)
        a = pm.Normal("a", mu, tau, dims="zone")
        eta = a[rows["zone"]] + pm.Normal("b") * rows["night"]
        pm.NegativeBinomial("tips", mu=pm.math.exp(eta), alpha=alpha, observed=rows["tips"])
    return model


def slopes(rows: Any) -> pm.Model:
    """Continuous outcomes by 1000 places with correlated intercepts and slopes."""
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", shape=2), pm.HalfNormal("sigma")
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1, shape=2))
        # Thousands of rows a place determine intercept and slope.
        a = pm.MvNormal("a", mu, chol=chol, shape=(1000, 2))
        predictor = a[rows["place"], 0] + a[rows["place"], 1] * rows["distance"]
        pm.Normal("toll", predictor, sigma, observed=rows["toll"])
    return model


MODELS: dict[str, Callable[[Any], pm.Model]] = {
    x.__name__: x for x in (counts, negative_binomial, logit, ordered, student_t, gaussian, slopes)
}
# Columns that a model reads.
READ = {
    "counts": "zone, night, tips",
    "logit": "zone, rank, night",
    "ordered": "income, night, rank",
    "student_t": "income, night",
    "gaussian": "place, distance, hours, fare",
    "negative_binomial": "zone, night, tips",
    "slopes": "place, distance, toll",
}
DRAWS, TUNE, CHAINS = 1000, 500, 4
# Frames of the file that DuckDB wrote.
FROM_FILE = ("parquet", "polars", "pandas", "dask")


def source(model: str, engine: str, n_rows: int, file: str, threads: int) -> Any:
    """Return the rows that a model reads in an engine, by default the relation ``rides`` of DuckDB, which makes rows on the fly."""
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
    return connection.view("rides").select(READ[model])


def write(model: str, n_rows: int, file: str) -> None:
    """Write the rows that a model reads to a Parquet file."""
    import duckdb

    rows = duckdb.sql(f"SELECT {COLUMNS} FROM range({n_rows}) t(i)")
    rows.select(READ[model]).write_parquet(file)


class Stages:
    """Seconds of the stages of a run, of which one begins where the one before ends."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._begin = time.perf_counter()

    def end(self, name: str) -> None:
        """End a stage."""
        begin, self._begin = self._begin, time.perf_counter()
        self.seconds[name] = self._begin - begin

    def end_sampling(self, seconds: float) -> None:
        """End compilation and sampling, which one call does."""
        self.end("compile")
        self.seconds["compile"] -= seconds
        self.seconds["sample"] = seconds


class Run(NamedTuple):
    """Posterior of a run, and facts about its table."""

    idata: Any
    facts: dict[str, Any]


def measure(model: str, engine: str, n_rows: int, file: str, threads: int) -> dict[str, Any]:
    """Return cells, seconds of each stage, peak memory in bytes, and the worst R-hat and effective sample size."""
    import arviz as az

    rows = source(model, engine, n_rows, file, threads)
    stages = Stages()
    idata, facts = WAYS.get(engine, _by_table)(rows, model, n_rows, threads, stages)
    peak = process_memory("VmHWM")
    r_hat, ess = az.rhat(idata), az.ess(idata)
    return {
        "model": model,
        "engine": engine,
        "rows": n_rows,
        "peak": peak,
        "r_hat": max(float(x.max()) for x in r_hat.data_vars.values()),
        "ess": min(float(x.min()) for x in ess.data_vars.values()),
        **stages.seconds,
        **facts,
    }


def _by_table(rows: Any, model: str, n_rows: int, threads: int, stages: Stages) -> Run:
    """Sample a model of a table."""
    import pymc_fastlogp
    from pymc_fastlogp.models.table_rows import without_tables

    written = MODELS[model](pymc_fastlogp.table(rows))
    stages.end("build")
    reduced, tables = without_tables(written)
    stages.end("reduce")
    idata = _by_nutpie(reduced, stages)
    [read] = tables.values()
    if read.rows.n_rows != n_rows:
        raise ValueError(f"{read.rows.n_rows} rows were read, not {n_rows}")
    facts: dict[str, Any] = {"cells": read.rows.n_cells}
    if read.plan.is_of_columns and (isinstance(rows, str) or hasattr(rows, "fetchnumpy")):
        facts["query"] = _seconds_of_query(rows, ", ".join(read.columns))
    return Run(idata, facts)


def _by_arrays(rows: Any, model: str, n_rows: int, threads: int, stages: Stages) -> Run:
    """Load all rows, and sample with the plugin."""
    arrays = _loaded(rows, stages)
    written = MODELS[model](arrays)
    stages.end("build")
    return Run(_by_nutpie(written, stages), {})


def _by_pymc(rows: Any, model: str, n_rows: int, threads: int, stages: Stages) -> Run:
    """Load all rows, and sample with PyMC alone."""
    arrays = _loaded(rows, stages)
    written = MODELS[model](arrays)
    stages.end("build")
    return Run(_by_pm_sample(written, threads, stages), {})


def _by_hand(rows: Any, model: str, n_rows: int, threads: int, stages: Stages) -> Run:
    """Compute sums in DuckDB, and sample a model that is written for them with PyMC alone."""
    data = _sums_of(rows, model, stages)
    written = BY_HAND[model].model(data)
    stages.end("build")
    return Run(_by_pm_sample(written, threads, stages), {})


def _by_stanli(rows: Any, model: str, n_rows: int, threads: int, stages: Stages) -> Run:
    """Compute sums in DuckDB, and sample a Stan program that is written for them."""
    import stanli
    from arviz_base import from_dict

    data = _sums_of(rows, model, stages)
    stages.end("build")
    compiled = stanli.Model(stan_code=BY_HAND[model].program, data=data)
    stages.end("compile")
    fit = compiled.sample(
        chains=CHAINS, seed=1, warmup=TUNE, samples=DRAWS, parallel_chains=threads, refresh=0
    )
    idata = from_dict({"posterior": {name: fit.draws(name) for name in fit.variables}})
    stages.end("sample")
    return Run(idata, {})


WAYS: dict[str, Callable[[Any, str, int, int, Stages], Run]] = {
    "memory": _by_arrays,
    "pm.sample": _by_pymc,
    "SQL, pm.sample": _by_hand,
    "SQL, stanli": _by_stanli,
}


def _loaded(rows: Any, stages: Stages) -> dict[str, Any]:
    """Return all rows of a relation as constants of PyTensor, in which PyTensor looks for no booleans."""
    import pytensor.tensor as pt

    arrays = {name: pt.constant(np.asarray(x)) for name, x in rows.fetchnumpy().items()}
    stages.end("reduce")
    return arrays


def _sums_of(rows: Any, model: str, stages: Stages) -> dict[str, Any]:
    sums = BY_HAND[model]
    data = sums.data(rows.query("rides", sums.query).fetchnumpy())
    stages.end("reduce")
    return data


def _by_nutpie(model: pm.Model, stages: Stages) -> Any:
    import nutpie

    import pymc_fastlogp

    compiled = pymc_fastlogp.compile_pymc_model(model)
    stages.end("compile")
    idata = nutpie.sample(
        compiled, draws=DRAWS, tune=TUNE, chains=CHAINS, seed=1, progress_bar=False
    )
    stages.end("sample")
    return idata


def _by_pm_sample(model: pm.Model, threads: int, stages: Stages) -> Any:
    idata = pm.sample(
        DRAWS,
        tune=TUNE,
        chains=CHAINS,
        cores=threads,
        random_seed=1,
        model=model,
        progressbar=False,
        quiet=True,
    )
    stages.end_sampling(idata["posterior"].attrs["sampling_time"])
    if "pymc_fastlogp" in sys.modules:
        raise RuntimeError("the plugin was imported")
    return idata


def _seconds_of_query(rows: Any, names: str) -> float:
    """Return the seconds of the ``GROUP BY`` of DuckDB alone."""
    import duckdb

    relation = duckdb.read_parquet(rows) if isinstance(rows, str) else rows
    begin = time.perf_counter()
    relation.aggregate(f"{names}, count(*)", names).fetchall()
    return time.perf_counter() - begin
