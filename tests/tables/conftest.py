"""Tables of each engine, and the comparison of a model of a table with that of all rows in memory."""

import os
import sys
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.variable import TensorConstant

from pymc_fastlogp.tables.cells import Summary
from pymc_fastlogp.tables.columns import column_of
from pymc_fastlogp.tables.engine_table import Table
from pymc_fastlogp.tables.expressions import Expression, expression_of_column
from tests.conftest import PYTHON

N = 120_000
# Counts, categories, rounded and continuous numbers, and numbers with a large mean.
ROWS = f"""
SELECT CAST(hash(i) % 23 AS INTEGER) AS zone,
       CASE hash(i + 7) % 3 WHEN 0 THEN 'small' WHEN 1 THEN 'large' ELSE 'huge' END AS size,
       hash(i + 11) % 2 = 0 AS night,
       CAST(hash(i * 31 + 13) % (3 + hash(i) % 23 % 5) AS TINYINT) AS tips,
       CAST(5 + hash(i + 17) % 3 AS BIGINT) AS seats,
       CAST(hash(i + 19) % 4 AS BIGINT) AS rank,
       CAST(hash(i + 23) % 9 AS DOUBLE) / 4 - 1 AS income,
       CAST(1e8 AS DOUBLE) + CAST(hash(i + 29) % 17 AS DOUBLE) / 8 AS meter,
       CAST(hash(i + 37) AS DOUBLE) / 1.8446744073709552e19 AS noise
FROM range({N}) t(i)
"""


@pytest.fixture(scope="session")
def engines() -> None:
    """Skip a test where the extra for tables is not installed."""
    pytest.importorskip("narwhals")
    pytest.importorskip("duckdb")


@pytest.fixture(scope="session")
def relation(engines: None) -> Any:
    """Rows in DuckDB."""
    connection = pytest.importorskip("duckdb").connect()
    connection.execute("SET threads = 1")
    connection.execute(f"CREATE TABLE rides AS {ROWS}")
    return connection.table("rides")


@pytest.fixture(scope="session")
def columns(relation: Any) -> dict[str, TensorConstant]:
    """Return the rows in memory; sizes are codes of sorted levels."""
    columns = {
        name: np.asarray(x) if x.dtype.kind in "fb" else x
        for name, x in relation.fetchnumpy().items()
    }
    columns["size"] = np.unique(columns["size"].astype(str), return_inverse=True)[1]
    # As pm.Data has them. An array as index would be searched for booleans in Python.
    return {
        name: pt.constant(x.astype(np.int64) if x.dtype.kind in "iu" else x)
        for name, x in columns.items()
    }


@pytest.fixture(scope="session")
def in_memory(columns: dict[str, TensorConstant]) -> Callable[[Callable], pm.Model]:
    """Build a model of the rows in memory once for all engines."""
    return cache(lambda build: build(columns))


@pytest.fixture(scope="session")
def files(relation: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the rows as two Parquet files and one CSV file."""
    folder = tmp_path_factory.mktemp("rides")
    relation.filter("zone < 10").write_parquet(str(folder / "a.parquet"))
    relation.filter("zone >= 10").write_parquet(str(folder / "b.parquet"))
    relation.write_csv(str(folder / "rides.csv"))
    return folder


def _polars() -> Any:
    return pytest.importorskip("polars")


def _dask(frame: Any) -> Any:
    return pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=3)


def _spark(frame: Any) -> Any:
    """Return a Spark frame, for which Spark needs Java."""
    sql = pytest.importorskip("pyspark.sql")
    # Workers need PyArrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = sql.SparkSession.builder.master("local[1]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except RuntimeError as error:
        pytest.skip(str(error))
    return session.createDataFrame(frame)


def _ibis(frame: Any) -> Any:
    return pytest.importorskip("ibis").memtable(frame)


# From relation and files to a source.
SOURCES: dict[str, Callable[[Any, Path], Any]] = {
    "duckdb": lambda relation, files: relation,
    "parquet": lambda relation, files: files / "*.parquet",
    "csv": lambda relation, files: str(files / "rides.csv"),
    "polars": lambda relation, files: _polars().from_arrow(relation.to_arrow_table()),
    "polars_lazy": lambda relation, files: _polars().scan_parquet(files / "*.parquet"),
    "pandas": lambda relation, files: relation.df(),
    "pyarrow": lambda relation, files: relation.to_arrow_table(),
    "dask": lambda relation, files: _dask(relation.df()),
    "spark": lambda relation, files: _spark(relation.to_arrow_table()),
    "ibis": lambda relation, files: _ibis(relation.to_arrow_table()),
}


@pytest.fixture(scope="session", params=SOURCES)
def source(request: pytest.FixtureRequest, relation: Any, files: Path) -> Any:
    """Rows in each engine."""
    return SOURCES[request.param](relation, files)


class QuadraticIn:
    """Log density that is quadratic in some columns."""

    def __init__(self, *names: str):
        self._names = names

    def is_quadratic(self, expressions: Sequence[Expression]) -> bool:
        """Return whether all expressions are such columns."""
        return all(x.text in self._names for x in expressions)


def summary_of(table: Table, *names: str, quadratic: Sequence[str] = ()) -> Summary:
    """Return the summary of all rows for a log density of some columns."""
    placeholders = [table[name] for name in names]
    read = [expression_of_column(column_of(x), x.type.dtype) for x in placeholders]
    return table.rows(table.plan(read, QuadraticIn(*quadratic)))


class Densities:
    """Log density and gradient of a model at a point, by the names of value variables.

    Parameters
    ----------
    model : pymc.Model
        A model whose factors are elementwise.
    """

    def __init__(self, model: pm.Model):
        values = model.continuous_value_vars
        logp = model.logp()
        self._names = [x.name for x in values]
        self._function = pytensor.function(values, [logp, *pt.grad(logp, values)], mode=PYTHON)
        self._terms = pt.concatenate([x.ravel() for x in model.logp(sum=False)])
        self._values = values

    def __call__(self, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the log density as ``logp`` and the gradient by name."""
        values = self._function(*(point[name] for name in self._names))
        return dict(zip(["logp", *self._names], map(np.asarray, values), strict=True))

    @cached_property
    def _derivatives(self) -> Any:
        """Function from directions and values to the terms and their directional derivatives, ``J v`` as the gradient of ``v' J' s`` by ``s``."""
        signs = pt.vector("signs", shape=self._terms.type.shape)
        backward = pt.grad((signs * self._terms).sum(), self._values)
        directions = [x.type(f"direction_{x.name}") for x in self._values]
        along = pt.add(*((x * d).sum() for x, d in zip(backward, directions, strict=True)))
        return pytensor.function(
            [*directions, *self._values],
            [self._terms, pt.grad(along, signs)],
            mode=PYTHON,
            givens={signs: pt.ones_like(self._terms)},
            on_unused_input="ignore",
        )

    def sizes(self, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the sums of absolute terms of the log density, and of each entry of the gradient."""
        values = [np.asarray(point[name], np.float64) for name in self._names]
        sizes = {name: np.zeros_like(x) for name, x in zip(self._names, values, strict=True)}
        for name, size in sizes.items():
            for place in np.ndindex(size.shape):
                directions = {other: np.zeros_like(x) for other, x in sizes.items()}
                directions[name][place] = 1
                terms, derivatives = self._derivatives(*directions.values(), *values)
                size[place] = np.abs(derivatives).sum()
        return {"logp": np.abs(terms).sum(), **sizes}


_densities = cache(Densities)


def assert_equal_densities(reduced: pm.Model, whole: pm.Model) -> None:
    """Assert that logp and gradient agree to 1e-12 of the sum of absolute terms."""
    ours, theirs = Densities(reduced), _densities(whole)
    start = whole.initial_point()
    rng = np.random.default_rng(1)
    for scale in (0.0, 0.5):
        point = {name: x + scale * rng.normal(size=np.shape(x)) for name, x in start.items()}
        sizes = ours.sizes(point)
        expected, found = theirs(point), ours(point)
        assert np.isfinite(expected["logp"])
        for name, x in expected.items():
            assert (np.abs(found[name] - x) <= 1e-12 * sizes[name]).all(), name
