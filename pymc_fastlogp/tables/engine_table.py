"""The public :func:`table`: columns of a table as placeholders in a model, and summaries of its rows."""

import json
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import cached_property, reduce
from math import inf
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.configdefaults import config

from pymc_fastlogp.tables.cells import Cells, Summary
from pymc_fastlogp.tables.columns import Column, placeholder
from pymc_fastlogp.tables.disk import StoredParts, arrays_of, summary_of
from pymc_fastlogp.tables.expressions import Expression, expression_of_column
from pymc_fastlogp.tables.factors import Factors
from pymc_fastlogp.tables.memory import as_text, free_memory
from pymc_fastlogp.tables.parts import parts_of
from pymc_fastlogp.tables.plan import (
    N_SAMPLE,
    Density,
    Outlook,
    Plan,
    Way,
    expected_cells,
    n_points,
    plan_of,
    summarize,
)
from pymc_fastlogp.tables.progress import reading, report
from pymc_fastlogp.tables.sample import RandomSample
from pymc_fastlogp.tables.source import Source, source_of

# Rows that a placeholder holds.
N_PLACEHOLDER = 1000
# Rows that the sample is drawn from, at most.
N_SCANNED = 2_000_000
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

    def __init__(self, source: Source, extends: "Table | None" = None):
        self._source = source
        self._schema = dict(source.frame.collect_schema())
        # The table whose levels and dtypes new rows have.
        self._extends = extends
        self._stored: StoredParts = StoredParts(
            source, self._schema, None if extends is None else extends._stored
        )
        # Tables of the rows that were added.
        self._added: list[Table] = []
        self._placeholders: dict[Column, SharedVariable] = {}
        self._levels: dict[str, list[Any]] = {}
        self._samples: dict[tuple[Column, ...], dict[Column, np.ndarray]] = {}
        self._rows: dict[Plan, Summary] = {}
        self._plans_from_disk: set[Plan] = set()
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
            [n] = self._part(("n_rows",), lambda: {"n": np.array([self._count_rows()])}).values()
            self._n_rows = int(n[0])
        return self._n_rows + sum(x.n_rows for x in self._added)

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
        for part in (self, *self._added):
            part._check_unchanged()
        if plan not in self._rows:
            parts = [part._summary(plan) for part in (self, *self._added)]
            self._rows[plan] = reduce(lambda a, b: a.merge(b), parts)
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
            return Outlook(rows, n_rows, round(expected_cells(rows.counts, n_rows or inf)))
        return Outlook(rows, n_rows, self.n_rows, self._loading(plan))

    def has_read(self, plan: Plan) -> bool:
        """Return whether all rows were read before for a plan, by this process or another that stored them on disk."""
        return plan in self._rows or all(
            x._stored.read(*_name_on_disk(plan)) is not None for x in (self, *self._added)
        )

    def is_from_disk(self, plan: Plan) -> bool:
        """Return whether the summary of a plan was found on disk, which a process before has read."""
        return all(plan in x._plans_from_disk for x in (self, *self._added))

    def batches(self, size: int) -> Generator[Any]:
        """Yield all rows as narwhals DataFrames of at most ``size`` rows, in any order."""
        for part in (self, *self._added):
            part._check_unchanged()
            for rows in part._source.batches(part.columns):
                for begin in range(0, len(rows), size):
                    yield rows[begin : begin + size]

    def parts(self, columns: Sequence[Column]) -> list[Any]:
        """Return all rows as parts that other processes read, see :mod:`pymc_fastlogp.tables.parts`."""
        names, added = _names(columns), sum(x.n_rows for x in self._added)
        found = []
        for part, n_rows in [(self, self.n_rows - added), *((x, x.n_rows) for x in self._added)]:
            part._check_unchanged()
            found += parts_of(part._source, names, n_rows)
        return found

    def reader(self, columns: Sequence[Column]) -> "PartReader":
        """Return the reader of columns of :meth:`parts` in another process."""
        return PartReader((*columns,), self._schema, self._levels)

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
        merged = {plan: x.merge(added._summary(plan)) for plan, x in self._rows.items()}
        self._added.append(added)
        self._rows = merged

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
        frame = new._collect(new._source.frame.select(names))
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

    def _summary(self, plan: Plan) -> Summary:
        """Return the summary of the rows without those that were added, from disk if possible."""
        names = ", ".join(x.name for x in self._in_order(plan.expressions))
        is_read = []

        def read() -> dict[str, np.ndarray]:
            is_read.append(True)
            with reading(f"{self.engine} reads {names}", self._source.percent):
                return arrays_of(self._read(plan))

        summary = summary_of(self._part(_name_on_disk(plan), read))
        if not is_read:
            self._plans_from_disk.add(plan)
        if self._n_rows is None:
            self._n_rows = summary.n_rows
        return summary

    def _part(
        self, name: tuple[Any, ...], read: Callable[[], dict[str, np.ndarray]]
    ) -> dict[str, np.ndarray]:
        """Return the arrays of a part of the table from disk, or read and store them."""
        self._check_unchanged()
        arrays = self._stored.read(*name)
        if arrays is None:
            with self._source.queries():
                arrays = read()
            self._check_unchanged()
            self._stored.write(arrays, *name)
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
            is_text = self._is_text(name), new._is_text(name)
            if is_text[0] != is_text[1] or not np.can_cast(_kind(now), _kind(before), "same_kind"):
                raise TypeError(
                    f'column "{name}" is {now} in the new rows, and {before} in the table: cast it.'
                )
        new._schema |= {name: self._schema[name] for name in columns}
        return new

    def _count_rows(self) -> int:
        import narwhals.stable.v2 as nw

        counted = self._collect(self._source.frame.select(nw.len().alias("n")))
        return int(counted["n"][0])

    def _in_order(self, expressions: Iterable[Expression]) -> tuple[Column, ...]:
        """Return the columns that expressions read, in the order of the table."""
        found = {column for x in expressions for column in x.columns}
        places = {name: k for k, name in enumerate(self._schema)}
        return (*sorted(found, key=lambda x: (places[x.name], x.is_coded)),)

    def _sample(self, columns: tuple[Column, ...]) -> dict[Column, np.ndarray]:
        if columns not in self._samples:
            name = ("sample", *((x.name, x.is_coded) for x in columns))
            arrays = self._part(name, lambda: self._read_sample(columns))
            for n in arrays.pop("n_rows"):
                self._note_n_rows(int(n))
            self._samples[columns] = dict(zip(columns, arrays.values(), strict=True))
        return self._samples[columns]

    def _read_sample(self, columns: tuple[Column, ...]) -> dict[str, np.ndarray]:
        """Return the values of a sample of rows by place, and the number of rows if known."""
        names, sample = _names(columns), RandomSample(N_SAMPLE)
        found: list[list[np.ndarray]] = []
        with (
            reading(f"{self.engine} reads a sample of {', '.join(names)}", self._source.percent),
            closing(self._source.spread_batches(names, N_SCANNED)) as batches,
        ):
            for batch in batches:
                rows = batch[sample.candidates(len(batch))]
                found.append([self._values(x, rows) for x in columns])
        if not sample.n_seen:
            raise ValueError("the table has no rows: look at its filters.")
        places = sample.places()
        values = (np.concatenate(x)[places] for x in zip(*found, strict=True))
        is_all = sample.n_seen < N_SCANNED
        known = self._source.n_rows or (sample.n_seen if is_all else None)
        n_rows = np.array([] if known is None else [known], np.int64)
        return {str(k): x for k, x in enumerate(values)} | {"n_rows": n_rows}

    def _select(self, columns: Sequence[Column]) -> Any:
        return self._source.frame.select(_names(columns))

    def _read(self, plan: Plan) -> Summary:
        columns = self._in_order(plan.expressions)
        # Half of the memory for cells, since a merge holds two summaries.
        width = n_points(len(plan.others)) * (1 + len(plan.expressions))
        most = int(free_memory() / (2 * PEAK * BYTES * width))
        match plan.way:
            case Way.LOADED:
                if not self._fits(plan):
                    raise ValueError(f"{self._loading(plan)}.")
                summary = summarize(plan, plan.values(self._all_values(columns)))
            case Way.GROUPED:
                summary = self._grouped_cells(plan, columns, most)
            case _:
                summary = self._merged(plan, columns, most)
        self._note_n_rows(summary.n_rows)
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

    def _all_values(self, columns: Sequence[Column]) -> dict[Column, np.ndarray]:
        frame = self._collect(self._select(columns))
        return {x: self._values(x, frame) for x in columns}

    def _grouped_cells(self, plan: Plan, columns: Sequence[Column], most: int) -> Cells:
        """Return the distinct rows of columns, of which the engine counts at most ``most``."""
        names, frame = _names(columns), self._select(columns)
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
                report(sum(x.n_rows for _, x in parts), sum(x.n_cells for _, x in parts))
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
        places = {level: k for k, level in enumerate(levels)}
        inverse, distinct = pd.factorize(np.asarray(values))
        try:
            codes = np.array([places[x] for x in distinct.tolist()], np.int64)
        except KeyError as error:
            raise ValueError(
                f'column "{name}" has a new level {error}: drop such rows, or call table() and build the model again.'
            ) from None
        return codes[inverse]

    def _sorted_levels(self, column: str) -> list[Any]:
        if self._extends is not None:
            return self._extends._sorted_levels(column)
        if column not in self._levels:
            text = self._part(("levels", column), lambda: self._read_levels(column))["json"]
            self._levels[column] = json.loads(text.tobytes())
        return self._levels[column]

    def _read_levels(self, column: str) -> dict[str, np.ndarray]:
        found = self._grouped(self._source.frame.select(column), [column], MAX_LEVELS)
        if found[column].null_count():
            raise ValueError(_fix(column, "has missing values"))
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
            name = ("first rows", column.name, column.is_coded)
            [values] = self._part(
                name, lambda: {"values": self._values(column, self._head)}
            ).values()
            self._placeholders[column] = placeholder(column, values)
        return self._placeholders[column]

    @cached_property
    def _head(self) -> Any:
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


class PartReader(NamedTuple):
    """Reader of columns of a part of a table, which can be pickled.

    Attributes
    ----------
    columns : tuple of Column
        The columns.
    schema : dict of str to dtype
        Columns of the table.
    levels : dict of str to list
        Levels of columns that are coded.
    """

    columns: tuple[Column, ...]
    schema: dict[str, Any]
    levels: dict[str, list[Any]]

    def values(self, rows: Any) -> list[np.ndarray]:
        """Return the values of the columns in the rows of a frame in memory.

        Raises
        ------
        ValueError
            If a value is missing, NaN or infinite, or a level is new.
        """
        part = Table(source_of(rows))
        part._schema |= {name: self.schema[name] for name in part.columns}
        part._levels = self.levels
        return [*part._all_values(self.columns).values()]


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


def _name_on_disk(plan: Plan) -> tuple[Any, ...]:
    """Return the name of the part of a table that is the summary of a plan."""
    keys, others = ([(x.text, x.dtype) for x in xs] for xs in (plan.keys, plan.others))
    return "rows", plan.way.value, keys, others


def _kind(dtype: Any) -> np.dtype:
    """Return the dtype of a placeholder of values, or of codes."""
    if dtype.is_float() or dtype.is_decimal():
        return np.dtype(config.floatX)
    return np.dtype(bool if str(dtype) == "Boolean" else np.int64)


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
