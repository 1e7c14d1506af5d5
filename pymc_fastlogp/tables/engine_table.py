"""The public :func:`table`: columns of a table as placeholders in a model, and summaries of its rows."""

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property, reduce
from math import inf
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable

from pymc_fastlogp.tables.cells import Cells, Summary
from pymc_fastlogp.tables.column_values import (
    PartitionReader,
    column_values,
    is_text,
    placeholder_dtype,
    unusable,
)
from pymc_fastlogp.tables.columns import Column, placeholder
from pymc_fastlogp.tables.expressions import Expression, expression_of_column
from pymc_fastlogp.tables.factors import Factors
from pymc_fastlogp.tables.memory import as_text, free_memory
from pymc_fastlogp.tables.partitions import partitions_of
from pymc_fastlogp.tables.plan import (
    Density,
    Outlook,
    Plan,
    Way,
    expected_cells,
    n_points,
    plan_of,
    summarize,
)
from pymc_fastlogp.tables.progress import reading
from pymc_fastlogp.tables.query_cache import QueryCache, arrays_of, summary_of
from pymc_fastlogp.tables.sample import read_sample
from pymc_fastlogp.tables.source import Source, source_of
from pymc_fastlogp.tables.summaries import (
    count_name,
    distinct_rows,
    merged,
    summaries_of_batches,
)

# Rows that a placeholder holds.
N_PLACEHOLDER = 1000
# Peak memory of a compilation from frozen data, in multiples of the data.
PEAK = 8
BYTES = 8
MAX_LEVELS = 1_000_000


class Table:
    """Rows that stay in their engine; :func:`table` makes a table.

    ``table["column"]`` is a placeholder that a model takes wherever it takes ``pm.Data``, ``observed`` too. The placeholder holds the first
    1000 rows, so prior predictive draws, and everything else that PyMC does by itself, is about these rows.
    """

    def __init__(self, source: Source, extends: "Table | None" = None):
        self._source = source
        self._schema = dict(source.frame.collect_schema())
        # The table whose levels and dtypes new rows have.
        self._extends = extends
        self._cache: QueryCache = QueryCache(
            source, self._schema, None if extends is None else extends._cache
        )
        # Tables of the rows that were added.
        self._added: list[Table] = []
        self._placeholders: dict[Column, SharedVariable] = {}
        self._levels: dict[str, list[Any]] = {}
        self._samples: dict[tuple[Column, ...], dict[Column, np.ndarray]] = {}
        self._rows: dict[Plan, Summary] = {}
        # Queries whose results another process has stored.
        self._found_on_disk: set[tuple[Any, ...]] = set()
        self._n_rows: int | None = None
        # Samples are drawn from so many first rows; None if they are from all parts of the table.
        self._n_first: int | None = None
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
        return sum(x._n_own_rows for x in self._with_added)

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        is_counted = all(x._n_rows is not None for x in self._with_added)
        rows = f", {self.n_rows} rows" if is_counted else ""
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
        is_coded = is_text(self._dtype(column))
        return self.codes(column) if is_coded else self._placeholder(Column(self, column))

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
        return [*self._sorted_levels(column)]

    def plan(self, expressions: Sequence[Expression], density: Density) -> Plan:
        """Return how the rows are read that a log density needs. A sample of rows is read for that, and the number of rows if the sample hardly repeats.

        Raises
        ------
        ValueError
            If a value is missing, NaN or infinite, or if the table has no rows or has changed.
        """
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
        for x in self._with_added:
            x._check_unchanged()
        if plan not in self._rows:
            summaries = (x._summary(plan) for x in self._with_added)
            self._rows[plan] = reduce(lambda a, b: a.merge(b), summaries)
        return self._rows[plan]

    def first_rows(self, plan: Plan) -> Summary:
        """Return the summary of the rows that the placeholders hold."""
        values = {x: self._placeholders[x].get_value() for x in self._in_order(plan.expressions)}
        return summarize(plan, plan.values(values))

    def outlook(self, plan: Plan) -> Outlook:
        """Return what is known of the rows that a plan needs before they are read: their sample, and estimates from it."""
        rows = summarize(plan, plan.values(self._sample(self._in_order(plan.expressions))))
        # Parquet files have the number in their metadata.
        is_known = self._n_rows is not None or self._source.is_parquet
        n_rows = self.n_rows if is_known else None
        if isinstance(rows, Cells | Factors):
            n_cells = round(expected_cells(rows.counts, n_rows or inf))
            return Outlook(rows, n_rows, n_cells, self._n_first)
        return Outlook(rows, n_rows, self.n_rows, self._n_first, self._loading(plan))

    def has_read(self, plan: Plan) -> bool:
        """Return whether all rows were read before for a plan, by this process or another that stored them on disk."""
        return plan in self._rows or all(
            x._cache.read(*_query_of(plan)) is not None for x in self._with_added
        )

    def is_from_disk(self, plan: Plan) -> bool:
        """Return whether the summary of a plan was found on disk, which a process before has read."""
        return all(_query_of(plan) in x._found_on_disk for x in self._with_added)

    def batches(self, size: int) -> Generator[Any]:
        """Yield all rows as narwhals DataFrames of at most ``size`` rows, in any order."""
        for x in self._with_added:
            x._check_unchanged()
            for rows in x._source.batches(x.columns):
                for begin in range(0, len(rows), size):
                    yield rows[begin : begin + size]

    def partitions(self, columns: Sequence[Column]) -> list[Any]:
        """Return all rows as partitions that other processes read, see :mod:`pymc_fastlogp.tables.partitions`."""
        found = []
        for x in self._with_added:
            x._check_unchanged()
            found += partitions_of(x._source, _names(columns), x._n_own_rows)
        return found

    def reader(self, columns: Sequence[Column]) -> PartitionReader:
        """Return the reader of columns of :meth:`partitions` in another process."""
        return PartitionReader((*columns,), self._schema, self._levels)

    def update(self, rows: Any, key: str | None = None) -> None:
        """Add new rows to the table. The posterior is that of all rows, and only the new rows are read.

        Placeholders, and the models that read them, stay. Files, rows and levels of the table must not change otherwise.

        Parameters
        ----------
        rows : path or frame
            The new rows, with the columns of the table, as for :func:`table`.
        key : str, optional
            Name of the new rows, as for :func:`table`.

        Raises
        ------
        KeyError
            If the new rows lack a column.
        TypeError
            If a column has another dtype.
        ValueError
            If a column that was read has a level that the table has not, or values that are missing, NaN or infinite.
        """
        added = self._table_of_new(rows, key, self.columns)
        # Read before anything changes, so that new rows that raise are not added.
        summaries = {plan: x.merge(added._summary(plan)) for plan, x in self._rows.items()}
        self._added.append(added)
        self._rows = summaries

    @contextmanager
    def use(self, rows: Any, predicted: str | Iterable[str] = ()) -> Iterator[None]:
        """Let the placeholders hold new rows inside of a block, as for ``pm.sample_posterior_predictive``.

        Parameters
        ----------
        rows : path or frame
            The new rows, as for :func:`table`, with the columns that models read. They are loaded.
        predicted : str or iterable of str
            Columns that the new rows need not have, because models read them as ``observed`` alone. Their placeholders hold zeros.

        Raises
        ------
        KeyError
            If the new rows lack a column.
        TypeError
            If a column has another dtype.
        ValueError
            If a column has a level that the table has not, or values that are missing, NaN or infinite.
        """
        predicted = {predicted} if isinstance(predicted, str) else {*predicted}
        names = [x for x in _names(self._placeholders) if x not in predicted]
        new = self._table_of_new(rows, None, names)
        frame = new._source.collect(new._source.frame.select(names))
        before = {x: x.get_value(borrow=True) for x in self._placeholders.values()}
        values = {
            x: np.zeros(len(frame), x.type.dtype)
            if column.name in predicted
            else new._values(column, frame)
            for column, x in self._placeholders.items()
        }
        is_warned_of, self.is_warned_of = self.is_warned_of, True
        try:
            for x, value in values.items():
                x.set_value(value, borrow=True)
            yield
        finally:
            for x, value in before.items():
                x.set_value(value, borrow=True)
            self.is_warned_of = is_warned_of

    @property
    def _with_added(self) -> tuple["Table", ...]:
        """The table itself, and those of the rows that were added."""
        return self, *self._added

    @property
    def _n_own_rows(self) -> int:
        """Number of rows without those that were added."""
        if self._n_rows is None:
            [n] = self._cached(("n_rows",), self._count_rows)["n"]
            self._n_rows = int(n)
        return self._n_rows

    def _summary(self, plan: Plan) -> Summary:
        """Return the summary of the rows without those that were added, from disk if possible."""
        names = ", ".join(x.name for x in self._in_order(plan.expressions))

        def read() -> dict[str, np.ndarray]:
            with reading(f"{self.engine} reads {names}", self._source.percent):
                return arrays_of(self._read(plan))

        summary = summary_of(self._cached(_query_of(plan), read))
        if self._n_rows is None:
            self._n_rows = summary.n_rows
        return summary

    def _cached(
        self, query: tuple[Any, ...], read: Callable[[], dict[str, np.ndarray]]
    ) -> dict[str, np.ndarray]:
        """Return the arrays of a query from disk, or read and store them."""
        self._check_unchanged()
        arrays = self._cache.read(*query)
        if arrays is not None:
            self._found_on_disk.add(query)
            return arrays
        with self._source.queries():
            arrays = read()
        self._check_unchanged()
        self._cache.write(arrays, *query)
        return arrays

    def _check_unchanged(self) -> None:
        """Raise ValueError if files have changed, but for files that were added by :meth:`update`."""
        self._source.check_unchanged(file for x in self._added for file in x._source.files)

    def _table_of_new(self, rows: Any, key: str | None, columns: Iterable[str]) -> "Table":
        """Return the table of new rows, with levels and dtypes of this table; raise if columns are missing or have another dtype."""
        new = Table(source_of(rows, key), extends=self)
        for name in columns:
            if name not in new.columns:
                raise KeyError(f"the new rows have no column {name!r}: add it.")
            before, now = self._schema[name], new._schema[name]
            kinds = placeholder_dtype(now), placeholder_dtype(before)
            if is_text(before) != is_text(now) or not np.can_cast(*kinds, "same_kind"):
                raise TypeError(
                    f'column "{name}" is {now} in the new rows, and {before} in the table: cast it.'
                )
        new._schema |= {name: self._schema[name] for name in columns}
        return new

    def _count_rows(self) -> dict[str, np.ndarray]:
        return {"n": np.array([self._source.count(self._source.frame)])}

    def _in_order(self, expressions: Iterable[Expression]) -> tuple[Column, ...]:
        """Return the columns that expressions read, in the order of the table."""
        found = {column for x in expressions for column in x.columns}
        places = {name: k for k, name in enumerate(self._schema)}
        return (*sorted(found, key=lambda x: (places[x.name], x.is_coded)),)

    def _sample(self, columns: tuple[Column, ...]) -> dict[Column, np.ndarray]:
        """Return the values of columns in a sample of rows."""
        if columns not in self._samples:
            query = ("sample", *((x.name, x.is_coded) for x in columns))
            arrays = self._cached(query, lambda: self._read_sample(columns))
            for n in arrays.pop("n_rows"):
                self._note_n_rows(int(n))
            for n in arrays.pop("n_first"):
                self._n_first = int(n)
            self._samples[columns] = dict(zip(columns, arrays.values(), strict=True))
        return self._samples[columns]

    def _read_sample(self, columns: tuple[Column, ...]) -> dict[str, np.ndarray]:
        """Return the values of a sample of rows by place, and the extent of the sample as arrays that are empty if unknown."""
        sample = read_sample(
            self._source,
            _names(columns),
            lambda rows: [self._values(x, rows) for x in columns],
        )
        extent = {
            name: np.array([] if n is None else [n], np.int64)
            for name, n in sample.extent._asdict().items()
        }
        return {str(k): x for k, x in enumerate(sample.columns)} | extent

    def _read(self, plan: Plan) -> Summary:
        """Return the summary of the rows without those that were added, from their engine."""
        columns = self._in_order(plan.expressions)
        # Half of the memory for cells, since a merge holds two summaries.
        width = n_points(len(plan.others)) * (1 + len(plan.expressions))
        most = int(free_memory() / (2 * PEAK * BYTES * width))
        match plan.way:
            case Way.LOADED:
                summary = self._load(plan, columns)
            case Way.GROUPED:
                summary = self._group(plan, columns, most)
            case _:
                summary = self._merge(plan, columns, most)
        self._note_n_rows(summary.n_rows)
        return summary

    def _load(self, plan: Plan, columns: Sequence[Column]) -> Summary:
        """Return all rows."""
        if not self._fits(plan):
            raise ValueError(f"{self._loading(plan)}.")
        frame = self._source.collect(self._source.frame.select(_names(columns)))
        return summarize(plan, plan.values({x: self._values(x, frame) for x in columns}))

    def _group(self, plan: Plan, columns: Sequence[Column], most: int) -> Summary:
        """Return the distinct rows of columns, of which the engine counts at most ``most``."""
        names = _names(columns)
        grouped = distinct_rows(self._source, names, most)
        if len(grouped) > most:
            raise ValueError(self._too_many(plan, most))
        values = {str(k): self._values(x, grouped) for k, x in enumerate(columns)}
        return Cells.summarize(values, grouped[count_name(names)].to_numpy())

    def _merge(self, plan: Plan, columns: Sequence[Column], most: int) -> Summary:
        """Return the summary of all batches, of at most ``most`` cells."""
        summaries = summaries_of_batches(
            self._source,
            _names(columns),
            plan,
            lambda rows: plan.values({x: self._values(x, rows) for x in columns}),
        )
        # Engines answer no other question before the batches are closed.
        with closing(summaries):
            summary = merged(summaries, most)
        if summary.n_cells > most:
            raise ValueError(self._too_many(plan, most))
        return summary

    def _note_n_rows(self, n: int) -> None:
        """Set the number of rows, and raise ValueError if it was another before."""
        if self._n_rows not in (None, n):
            raise ValueError(
                f"the table has {n} rows, and had {self._n_rows}: call table() and build the model again."
            )
        self._n_rows = n

    def _fits(self, plan: Plan) -> bool:
        return PEAK * self._n_bytes(plan) <= free_memory()

    def _n_bytes(self, plan: Plan) -> int:
        """Return the bytes of all rows that a plan needs."""
        return BYTES * self.n_rows * len(self._in_order(plan.expressions))

    def _loading(self, plan: Plan) -> str:
        """Return how many rows are loaded, or do not fit into memory, and advice."""
        names, size = ", ".join(_names(self._in_order(plan.keys))), as_text(self._n_bytes(plan))
        rows = f"{self.n_rows} rows of a table, {size}"
        why = f"rows of {names} hardly repeat: {self._advice(plan)}"
        if self._fits(plan):
            return f"{rows}, are to be loaded, since {why}"
        return (
            f"{rows}, do not fit into the memory that is free, {as_text(free_memory())}, and {why}"
        )

    def _too_many(self, plan: Plan, most: int) -> str:
        names, size = ", ".join(_names(self._in_order(plan.keys))), as_text(self._n_bytes(plan))
        return (
            f"the columns {names} have more than {most} distinct rows, and {self.n_rows} rows, {size}, do not fit into"
            f" the memory that is free, {as_text(free_memory())}: {self._advice(plan)}."
        )

    def _advice(self, plan: Plan) -> str:
        sample = self._sample(self._in_order(plan.expressions))
        worst = max(self._in_order(plan.keys), key=lambda x: len(np.unique(sample[x])))
        return f"round {worst.name} to fewer values in the table, or filter its rows"

    def _values(self, column: Column, frame: Any) -> np.ndarray:
        """Return the values of a column of rows in memory, in the dtype of its placeholder."""
        levels = self._sorted_levels(column.name) if column.is_coded else None
        return column_values(frame[column.name], self._schema[column.name], levels)

    def _sorted_levels(self, column: str) -> list[Any]:
        if self._extends is not None:
            return self._extends._sorted_levels(column)
        if column not in self._levels:
            text = self._cached(("levels", column), lambda: self._read_levels(column))["json"]
            self._levels[column] = json.loads(text.tobytes())
        return self._levels[column]

    def _read_levels(self, column: str) -> dict[str, np.ndarray]:
        found = distinct_rows(self._source, [column], MAX_LEVELS)
        if found[column].null_count():
            raise unusable(column, "has missing values")
        if len(found) > MAX_LEVELS:
            raise ValueError(f'column "{column}" has more than {MAX_LEVELS} levels: join some.')
        levels = np.unique(found[column].to_numpy())
        # NumPy's own strings lose trailing zeros.
        return {"json": np.frombuffer(json.dumps(levels.tolist()).encode(), np.uint8)}

    def _placeholder(self, column: Column) -> SharedVariable:
        if column not in self._placeholders:
            self._refuse_others(column)
            if column.is_coded:  # known before batches of rows are read
                self._sorted_levels(column.name)
            query = ("first rows", column.name, column.is_coded)
            [values] = self._cached(
                query, lambda: {"values": self._values(column, self._head)}
            ).values()
            self._placeholders[column] = placeholder(column, values)
        return self._placeholders[column]

    @cached_property
    def _head(self) -> Any:
        return self._source.collect(self._source.frame.head(N_PLACEHOLDER))

    def _dtype(self, column: str) -> Any:
        try:
            return self._schema[column]
        except KeyError:
            names = ", ".join(self.columns)
            raise KeyError(f"the table has no column {column!r}, only {names}") from None

    def _refuse_floats(self, column: str) -> None:
        dtype = self._dtype(column)
        if not is_text(dtype) and not dtype.is_integer():
            raise TypeError(
                f'column "{column}" is {dtype}, without levels: cast it to a string or an integer in the table.'
            )

    def _refuse_others(self, column: Column) -> None:
        import narwhals.stable.v2 as nw

        dtype = self._dtype(column.name)
        if not (column.is_coded or dtype.is_numeric() or dtype == nw.Boolean):
            raise TypeError(
                f'column "{column.name}" is {dtype}, no number: make a number or a string of it in the table.'
            )


def table(source: Any, *, key: str | None = None) -> Table:
    """Return a table whose rows stay where they are: a posterior of all rows, without loading one.

    The columns of the table are placeholders in a model. :func:`~pymc_fastlogp.sample` asks the engine for the distinct
    rows of each likelihood with their counts (``GROUP BY columns: count``), and evaluates the log density once for each. A likelihood with
    normal errors may have continuous covariates: batches of rows become a triangular factor per group. The
    posterior is that of all rows, up to round-off. Other rows that hardly repeat are loaded if they fit into memory.

    Parameters
    ----------
    source : path or frame
        Path or glob of Parquet or CSV files, which DuckDB reads; a DuckDB relation; a Polars DataFrame or LazyFrame; a pandas or Dask
        DataFrame; a PyArrow table; or a Spark or ibis frame. Filters and new columns are the business of the frame.
    key : str, optional
        Name of the rows of a frame. A later process that gives the same key finds on disk what was read, so change the key
        when rows change. Local files need no key: their paths, sizes and times are known.

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
    n: 10000 rows of a table are to be read as 2 distinct rows with counts (pandas: GROUP BY n, shop).
    """
    return Table(source_of(source, key))


def _query_of(plan: Plan) -> tuple[Any, ...]:
    """Return the query whose result is the summary of a plan."""
    keys, others = (tuple((x.text, x.dtype) for x in xs) for xs in (plan.keys, plan.others))
    return "rows", plan.way.value, keys, others


def _names(columns: Iterable[Column]) -> list[str]:
    """Return the names of columns. Values and codes of a column are read once."""
    return [*dict.fromkeys(x.name for x in columns)]
