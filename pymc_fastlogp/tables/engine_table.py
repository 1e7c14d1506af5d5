"""The public :func:`table`: columns of a table as placeholders in a model, and summaries of its rows."""

import os
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pandas as pd
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.configdefaults import config

from pymc_fastlogp.tables.cells import Cells, Summary
from pymc_fastlogp.tables.columns import Column, placeholder
from pymc_fastlogp.tables.expressions import Expression, expression_of_column
from pymc_fastlogp.tables.memory import as_text, free_memory
from pymc_fastlogp.tables.plan import (
    N_SAMPLE,
    Density,
    Plan,
    Way,
    n_points,
    plan_of,
    summarize,
)
from pymc_fastlogp.tables.source import Source, source_of

# Rows that a placeholder holds.
N_PLACEHOLDER = 1000
# Peak memory of a compilation from frozen data, in multiples of the data.
PEAK = 8
BYTES = 8
MAX_LEVELS = 1_000_000
# Threads that summarize batches; each needs the memory of a few batches.
N_THREADS = min(os.cpu_count() or 1, 4)


class Table:
    """Rows that stay in their engine; :func:`table` makes a table.

    ``table["column"]`` is a placeholder that a model takes wherever it takes ``pm.Data``, ``observed`` too. The placeholder holds the first
    1000 rows, so prior predictive draws, and everything else that PyMC does by itself, is about these rows.
    """

    def __init__(self, source: Source):
        self._source = source
        self._schema = dict(source.frame.collect_schema())
        self._placeholders: dict[Column, SharedVariable] = {}
        self._levels: dict[str, np.ndarray] = {}
        self._samples: dict[tuple[Column, ...], dict[Column, np.ndarray]] = {}
        self._rows: dict[Plan, Summary] = {}
        self._n_rows: int | None = None
        # Whether the user was warned of a log density of the first rows.
        self.is_warned_of = False

    @property
    def engine(self) -> str:
        """Name of the engine that holds the rows."""
        return self._source.engine

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._schema)

    @property
    def n_rows(self) -> int:
        """Number of rows. The engine counts them at first use."""
        if self._n_rows is None:
            import narwhals.stable.v2 as nw

            self._source.check_unchanged()
            counted = self._collect(self._source.frame.select(nw.len().alias("n")))
            self._n_rows = int(counted["n"][0])
        return self._n_rows

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        rows = "" if self._n_rows is None else f", {self._n_rows} rows"
        columns = "\n".join(f"  {name}: {dtype}" for name, dtype in self._schema.items())
        return f"Table in {self.engine}{rows}\n{columns}"

    def __getitem__(self, column: str) -> SharedVariable:
        """Return the placeholder of a column: its numbers, or the codes of strings and categories.

        Raises
        ------
        KeyError
            If the table has no such column.
        TypeError
            If the column holds neither numbers nor strings nor categories.
        ValueError
            If the first rows have missing, NaN or infinite values.
        """
        return (
            self.codes(column) if self._is_text(column) else self._placeholder(Column(self, column))
        )

    def codes(self, column: str) -> SharedVariable:
        """Return the placeholder of positions among :meth:`levels`, for integers that are not 0, 1, 2 and so on."""
        self._refuse_floats(column)
        return self._placeholder(Column(self, column, is_coded=True))

    def levels(self, column: str) -> list[Any]:
        """Return the sorted distinct values of a column of strings, categories or integers.

        Raises
        ------
        KeyError
            If the table has no such column.
        TypeError
            If the column holds neither strings nor categories nor integers.
        ValueError
            If values are missing, or there are more than a million levels.
        """
        self._refuse_floats(column)
        return self._sorted_levels(column).tolist()

    def plan(self, expressions: Sequence[Expression], density: Density) -> Plan:
        """Return how the rows are read that a log density needs. At most 100 000 rows are read for that, and the number of rows.

        Raises
        ------
        ValueError
            If a value is missing, NaN or infinite, or if the table has no rows or has changed.
        """
        self._source.check_unchanged()
        columns = self._in_order(expressions)
        sample = self._sample(columns)
        of_columns = [expression_of_column(x, self._placeholders[x].type.dtype) for x in columns]
        values = {x: x.values(sample) for x in (*of_columns, *expressions)}
        return plan_of(values, of_columns, expressions, density, lambda: self.n_rows)

    def rows(self, plan: Plan) -> Summary:
        """Return the summary of all rows that a plan needs.

        Raises
        ------
        ValueError
            If a value is missing, NaN or infinite, if the table has changed, or if the rows hardly repeat and do not fit into memory.
        """
        self._source.check_unchanged()
        if plan not in self._rows:
            self._rows[plan] = self._read(plan)
        return self._rows[plan]

    def first_rows(self, plan: Plan) -> Summary:
        """Return the summary of the rows that the placeholders hold."""
        values = {x: self._placeholders[x].get_value() for x in self._in_order(plan.expressions)}
        return summarize(plan, plan.values(values))

    def _in_order(self, expressions: Iterable[Expression]) -> tuple[Column, ...]:
        """Return the columns that expressions read, in the order of the table."""
        found = {column for x in expressions for column in x.columns}
        places = {name: k for k, name in enumerate(self._schema)}
        return (*sorted(found, key=lambda x: (places[x.name], x.is_coded)),)

    def _sample(self, columns: tuple[Column, ...]) -> dict[Column, np.ndarray]:
        if columns not in self._samples:
            frame = self._collect(self._select(columns).head(N_SAMPLE))
            if not len(frame):
                raise ValueError("the table has no rows: look at its filters.")
            self._samples[columns] = {x: self._values(x, frame) for x in columns}
        return self._samples[columns]

    def _select(self, columns: Sequence[Column]) -> Any:
        return self._source.frame.select(_names(columns))

    def _read(self, plan: Plan) -> Summary:
        columns = self._in_order(plan.expressions)
        if plan.way is Way.LOADED and self._fits(columns):
            return summarize(plan, plan.values(self._all_values(columns)))
        # Half of the memory for cells, since a merge holds two summaries.
        width = n_points(len(plan.others)) * (1 + len(plan.expressions))
        most = int(free_memory() / (2 * PEAK * BYTES * width))
        summary = (
            self._grouped_cells(plan, columns, most)
            if plan.is_of_columns
            else self._merged(plan, columns, most)
        )
        if self._n_rows not in (None, summary.n_rows):
            raise ValueError(
                f"the table has {summary.n_rows} rows, and had {self._n_rows}: call table() and build the model again."
            )
        self._n_rows = summary.n_rows
        return summary

    def _fits(self, columns: Sequence[Column]) -> bool:
        return PEAK * BYTES * self.n_rows * len(columns) <= free_memory()

    def _all_values(self, columns: Sequence[Column]) -> dict[Column, np.ndarray]:
        frame = self._collect(self._select(columns))
        return {x: self._values(x, frame) for x in columns}

    def _grouped_cells(self, plan: Plan, columns: Sequence[Column], most: int) -> Cells:
        """Return the distinct rows of columns, of which the engine counts at most ``most``."""
        names, frame = _names(columns), self._select(columns)
        if plan.way is Way.LOADED and self._n_distinct(frame.head(4 * most), names) > most:
            raise ValueError(self._too_many(plan, most))
        grouped = self._grouped(frame, names, most)
        if len(grouped) > most:
            raise ValueError(self._too_many(plan, most))
        values = {str(k): self._values(x, grouped) for k, x in enumerate(columns)}
        return Cells.summarize(values, grouped[_free_name(names)].to_numpy())

    def _merged(self, plan: Plan, columns: Sequence[Column], most: int) -> Summary:
        """Return the summary of all batches. Batches are merged as a balanced tree, so that rounding grows with the logarithm of their number."""
        parts: list[tuple[int, Summary]] = []
        # Engines answer no other question before the batches are closed.
        with closing(self._summaries(plan, columns)) as summaries:
            for part in summaries:
                level, merged = 0, part
                while parts and parts[-1][0] == level:
                    level, merged = level + 1, parts.pop()[1].merge(merged)
                parts.append((level, merged))
                if merged.n_cells > most:
                    break
        summary = reduce(lambda merged, part: part.merge(merged), (x for _, x in reversed(parts)))
        if summary.n_cells > most:
            raise ValueError(self._too_many(plan, most))
        return summary

    def _summaries(self, plan: Plan, columns: Sequence[Column]) -> Generator[Summary]:
        """Yield the summaries of batches, in order. Threads summarize while the next batches are read."""
        with (
            closing(self._source.batches(_names(columns))) as batches,
            ThreadPoolExecutor(N_THREADS) as threads,
        ):
            pending = deque[Future[Summary]]()
            for rows in batches:
                # Functions of PyTensor are called by one thread at a time.
                values = plan.values({x: self._values(x, rows) for x in columns})
                pending.append(threads.submit(summarize, plan, values))
                if len(pending) > N_THREADS:
                    yield pending.popleft().result()
            for following in pending:
                yield following.result()

    def _grouped(self, frame: Any, names: list[str], most: int) -> Any:
        """Return at most ``most + 1`` distinct rows, with their counts."""
        import narwhals.stable.v2 as nw

        count = _free_name(names)
        return self._collect(frame.group_by(names).agg(nw.len().alias(count)).head(most + 1))

    def _n_distinct(self, frame: Any, names: list[str]) -> int:
        """Return the number of distinct rows. On Dask, ``n_unique`` of groups is wrong, so groups are counted."""
        import narwhals.stable.v2 as nw

        groups = frame.group_by(names).agg(nw.len().alias(_free_name(names)))
        return int(self._collect(groups.select(nw.len().alias("n")))["n"][0])

    def _too_many(self, plan: Plan, most: int) -> str:
        columns, keys = self._in_order(plan.expressions), self._in_order(plan.keys)
        sample = self._sample(columns)
        named = {x.name: len(np.unique(sample[x])) for x in keys}
        worst = max(named, key=lambda name: named[name])
        size = as_text(BYTES * self.n_rows * len(columns))
        return (
            f"the columns {', '.join(named)} have more than {most} distinct rows, and {self.n_rows} rows, {size}, do not fit into"
            f" the memory that is free, {as_text(free_memory())}: round {worst} to fewer values in the table, or filter its rows."
        )

    def _values(self, column: Column, frame: Any) -> np.ndarray:
        """Return the values of a column that was collected, in the dtype of its placeholder."""
        name, series = column.name, frame[column.name]
        dtype = self._schema[name]
        if series.null_count():
            raise ValueError(_fix(name, "has missing values"))
        values = series.to_numpy()
        if column.is_coded:
            return self._encoded(name, values)
        if dtype.is_float() or dtype.is_decimal():
            values = values.astype(config.floatX, copy=False)
            if not np.isfinite(values).all():
                what = "NaN" if np.isnan(values).any() else "infinite values"
                raise ValueError(_fix(name, f"has {what}"))
            return values
        if dtype.is_integer():
            if len(values) and values.max() > np.iinfo(np.int64).max:
                raise ValueError(f'column "{name}" has integers beyond int64: cast it to float.')
            return values.astype(np.int64, copy=False)
        return values.astype(bool, copy=False)

    def _encoded(self, name: str, values: np.ndarray) -> np.ndarray:
        levels = self._sorted_levels(name)
        places = {level: k for k, level in enumerate(levels.tolist())}
        inverse, distinct = pd.factorize(np.asarray(values))
        try:
            codes = np.array([places[x] for x in distinct.tolist()], np.int64)
        except KeyError as error:
            raise ValueError(
                f'column "{name}" has a new level {error}: call table() and build the model again.'
            ) from None
        return codes[inverse]

    def _sorted_levels(self, column: str) -> np.ndarray:
        if column not in self._levels:
            self._source.check_unchanged()
            found = self._grouped(self._source.frame.select(column), [column], MAX_LEVELS)
            if found[column].null_count():
                raise ValueError(_fix(column, "has missing values"))
            if len(found) > MAX_LEVELS:
                raise ValueError(f'column "{column}" has more than {MAX_LEVELS} levels: join some.')
            self._levels[column] = np.unique(found[column].to_numpy())
        return self._levels[column]

    def _placeholder(self, column: Column) -> SharedVariable:
        if column not in self._placeholders:
            self._refuse_others(column)
            self._placeholders[column] = placeholder(column, self._values(column, self._head))
        return self._placeholders[column]

    @cached_property
    def _head(self) -> Any:
        self._source.check_unchanged()
        return self._collect(self._source.frame.head(N_PLACEHOLDER))

    def _collect(self, frame: Any) -> Any:
        return self._source.collect(frame)

    def _dtype(self, column: str) -> Any:
        try:
            return self._schema[column]
        except KeyError:
            names = ", ".join(self.columns)
            raise KeyError(f"the table has no column {column!r}, only {names}") from None

    def _is_text(self, column: str) -> bool:
        import narwhals.stable.v2 as nw

        return self._dtype(column) in (nw.String, nw.Categorical, nw.Enum)

    def _refuse_floats(self, column: str) -> None:
        if not self._is_text(column) and not self._dtype(column).is_integer():
            raise TypeError(
                f'column "{column}" is {self._dtype(column)}, without levels: cast it to a string or an integer in the table.'
            )

    def _refuse_others(self, column: Column) -> None:
        import narwhals.stable.v2 as nw

        dtype = self._dtype(column.name)
        if not (column.is_coded or dtype.is_numeric() or dtype == nw.Boolean):
            raise TypeError(
                f'column "{column.name}" is {dtype}, no number: make a number or a string of it in the table.'
            )


def table(source: Any) -> Table:
    """Return a table whose rows stay where they are: a posterior of all rows, without loading one.

    The columns of the table are placeholders in a model. :func:`~pymc_fastlogp.sample` asks the engine for the distinct
    rows of each likelihood with their counts (``GROUP BY columns: count``), and evaluates the log density once for each. A likelihood with
    normal errors may have continuous covariates: batches of rows become a triangular factor per group. The
    posterior is that of all rows, up to round-off. Other rows that hardly repeat are loaded if they fit into memory.

    Parameters
    ----------
    source : path or frame
        Path or glob of Parquet or CSV files, which DuckDB reads; a DuckDB relation; a Polars DataFrame or LazyFrame; a pandas or Dask
        DataFrame; or a PyArrow table. Filters and new columns are the business of the frame.

    Returns
    -------
    Table
        ``table["column"]`` is a placeholder; ``table.levels("column")`` are the levels of a column of strings or categories, whose placeholder
        holds codes.

    Raises
    ------
    ImportError
        If narwhals, or DuckDB for files, is not installed: ``pip install narwhals duckdb pyarrow``.
    FileNotFoundError
        If no file matches the path.
    ValueError
        If the format of the files is unknown.
    TypeError
        If the source is of another kind.

    Examples
    --------
    >>> import pandas as pd
    >>> import pymc as pm
    >>> import pymc_fastlogp
    >>> visits = pymc_fastlogp.table(pd.DataFrame({"shop": ["a", "b"] * 5000, "n": [1, 2] * 5000}))
    >>> visits.levels("shop")
    ['a', 'b']
    >>> with pm.Model(coords={"shop": visits.levels("shop")}) as model:
    ...     rate = pm.Exponential("rate", 1.0, dims="shop")
    ...     n = pm.Poisson("n", rate[visits["shop"]], observed=visits["n"])
    >>> print(pymc_fastlogp.explain(model).sentences()[0])
    n: 10000 rows of a table are 2 distinct rows with counts (pandas: GROUP BY n, shop).
    """
    return Table(source_of(source))


def _names(columns: Iterable[Column]) -> list[str]:
    """Return the names of columns. Values and codes of a column are read once."""
    return [*dict.fromkeys(x.name for x in columns)]


def _free_name(names: Sequence[str]) -> str:
    """Return a name for the column of counts that no other column has."""
    name = "n_rows"
    while name in names:
        name += "_"
    return name


def _fix(column: str, problem: str) -> str:
    return f'column "{column}" {problem}: drop or fill such rows in the table, as by table(frame.filter(...)).'
