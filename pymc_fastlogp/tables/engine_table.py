"""The public :func:`table`: columns of a table as placeholders in a model, and its distinct rows."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.configdefaults import config

from pymc_fastlogp.tables.cells import Cells
from pymc_fastlogp.tables.columns import Column, placeholder
from pymc_fastlogp.tables.disk import StoredParts
from pymc_fastlogp.tables.memory import as_text, free_memory
from pymc_fastlogp.tables.progress import reading
from pymc_fastlogp.tables.source import Source, source_of

# Rows that a placeholder holds.
N_PLACEHOLDER = 1000
# Rows whose distinct keys are counted before the engine is asked for all.
N_SAMPLE = 100_000
# Rows are grouped by the engine if they are expected to have fewer distinct keys than this share of the rows.
MAX_DISTINCT_SHARE = 0.7
# Peak memory of a compilation from frozen data, in multiples of the data.
PEAK = 8
BYTES = 8
MAX_LEVELS = 1_000_000


@dataclass(frozen=True)
class Rows:
    """Rows of a table that a log density is evaluated at.

    Attributes
    ----------
    columns : dict of Column to ndarray
        Values, or codes of levels.
    counts : ndarray of float64, optional
        Number of rows of the table that equal each row; None if all rows were loaded.
    n_rows : int
        Number of rows of the table.
    is_from_disk : bool
        Whether a process before has read the rows.
    """

    columns: dict[Column, np.ndarray]
    counts: np.ndarray | None
    n_rows: int
    is_from_disk: bool = False

    @property
    def n_cells(self) -> int:
        """Return the number of rows that are evaluated."""
        return len(next(iter(self.columns.values())))

    def merge(self, other: "Rows") -> "Rows":
        """Return the rows of both, in the dtypes of the first."""
        n_rows = self.n_rows + other.n_rows
        is_from_disk = self.is_from_disk and other.is_from_disk
        values = {
            x: np.concatenate([own, other.columns[x].astype(own.dtype)])
            for x, own in self.columns.items()
        }
        if self.counts is None and other.counts is None:
            return Rows(values, None, n_rows, is_from_disk)
        counts = [np.ones(x.n_cells) if x.counts is None else x.counts for x in (self, other)]
        cells = Cells.summarize(
            {str(k): x for k, x in enumerate(values.values())}, np.concatenate(counts)
        )
        return replace(_rows_of([*values], cells), is_from_disk=is_from_disk)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the rows as arrays by name, the columns by position."""
        arrays = {str(k): x for k, x in enumerate(self.columns.values())}
        counts = {} if self.counts is None else {"counts": self.counts}
        return {**arrays, **counts, "n_rows": np.array(self.n_rows)}

    @classmethod
    def from_arrays(cls, columns: Sequence[Column], arrays: Mapping[str, np.ndarray]) -> "Rows":
        """Return the rows of :meth:`to_arrays`, with the columns in the same order."""
        values = {x: arrays[str(k)] for k, x in enumerate(columns)}
        return cls(values, arrays.get("counts"), int(arrays["n_rows"]), is_from_disk=True)


class Table:
    """Rows that stay in their engine; :func:`table` makes a table.

    ``table["column"]`` is a placeholder that a model takes wherever it takes ``pm.Data``, ``observed`` too. The placeholder holds the first
    1000 rows, so prior predictive draws, and everything else that PyMC does by itself, is about these rows.
    """

    def __init__(self, source: Source, levels_of: "Table | None" = None):
        self._source = source
        self._schema = dict(source.frame.collect_schema())
        self._stored = StoredParts(source, self._schema)
        # The table whose levels the codes are positions of.
        self._levels_of = levels_of
        # Tables of the rows that were added.
        self._added: list[Table] = []
        self._placeholders: dict[Column, SharedVariable] = {}
        self._levels: dict[str, np.ndarray] = {}
        self._rows: dict[tuple[Column, ...], Rows] = {}
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

            self._check_unchanged()
            counted = self._collect(self._source.frame.select(nw.len().alias("n")))
            self._n_rows = int(counted["n"][0])
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
        return self._sorted_levels(column).tolist()

    def rows(self, columns: Sequence[Column]) -> Rows:
        """Return the distinct rows of some columns with counts, or all rows if they hardly repeat.

        Raises
        ------
        ValueError
            If a value is missing, NaN or infinite, if the table has no rows or has changed, or if the rows hardly repeat and do not fit into memory.
        """
        key = tuple(columns)
        for part in (self, *self._added):
            part._check_unchanged()
        if key not in self._rows:
            parts = [part._own_rows(key) for part in (self, *self._added)]
            self._rows[key] = reduce(Rows.merge, parts)
        return self._rows[key]

    def batches(self, size: int) -> Iterator[Any]:
        """Yield all rows as narwhals DataFrames of at most ``size`` rows, in any order."""
        for part in (self, *self._added):
            part._check_unchanged()
            for rows in part._source.batches(part.columns):
                for begin in range(0, len(rows), size):
                    yield rows[begin : begin + size]

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
        merged = {columns: x.merge(added._own_rows(columns)) for columns, x in self._rows.items()}
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
            Columns that the new rows need not have, because models read them as ``observed`` alone.

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
        read = dict.fromkeys(x.name for x in self._placeholders)
        new = self._table_of_new(rows, None, [x for x in read if x not in predicted])
        frame = new._collect(new._source.frame.select([x for x in read if x in new.columns]))
        before = {x: x.get_value(borrow=True) for x in self._placeholders.values()}
        values = {
            x: new._values(column, frame)
            if column.name in new.columns
            else np.zeros(len(frame), x.type.dtype)
            for column, x in self._placeholders.items()
        }
        is_warned_of, self.is_warned_of = self.is_warned_of, True
        try:
            for x, value in values.items():
                x.set_value(value.astype(x.type.dtype), borrow=True)
            yield
        finally:
            for x, value in before.items():
                x.set_value(value, borrow=True)
            self.is_warned_of = is_warned_of

    def first_rows(self, columns: Sequence[Column]) -> Rows:
        """Return the distinct rows with counts among those that the placeholders hold."""
        values = {str(k): self._placeholders[x].get_value() for k, x in enumerate(columns)}
        return _rows_of(columns, Cells.summarize(values))

    def _own_rows(self, columns: Sequence[Column]) -> Rows:
        """Return the rows without those that were added, from disk if possible."""
        part = ("rows", *((x.name, x.is_coded) for x in columns))
        stored = self._stored.read(*part)
        if stored is not None:
            rows = Rows.from_arrays(columns, stored)
            n_rows = self._source.n_rows if self._n_rows is None else self._n_rows
            if n_rows in (None, rows.n_rows):  # the key may have been given to other rows
                self._n_rows = rows.n_rows
                return rows
        names = ", ".join(x.name for x in columns)
        with reading(f"{self.engine} reads {names}", self._source.percent):
            rows = self._read([*columns])
        self._check_unchanged()
        self._stored.write(rows.to_arrays(), *part)
        return rows

    def _table_of_new(self, rows: Any, key: str | None, columns: Iterable[str]) -> "Table":
        """Return the table of new rows, whose codes are those of this table; raise if columns are missing or have another dtype."""
        new = Table(source_of(rows, key), levels_of=self)
        for name in columns:
            if name not in new.columns:
                raise KeyError(f"the new rows have no column {name!r}: add it.")
            before, now = self._schema[name], new._schema[name]
            is_text = self._is_text(name), new._is_text(name)
            if is_text[0] != is_text[1] or not np.can_cast(_kind(now), _kind(before), "same_kind"):
                raise TypeError(
                    f'column "{name}" is {now} in the new rows, and {before} in the table: cast it.'
                )
        return new

    def _check_unchanged(self) -> None:
        """Raise ValueError if files have changed, but for files that were added by :meth:`update`."""
        self._source.check_unchanged(file for x in self._added for file in x._source.files)

    def _read(self, columns: list[Column]) -> Rows:
        names = [*dict.fromkeys(x.name for x in columns)]
        frame = self._source.frame.select(names)
        sample = self._collect(frame.head(N_SAMPLE))
        cells = self._cells(columns, sample)
        if not cells.n_cells:
            raise ValueError("the table has no rows: look at its filters.")
        if not self._repeats(cells):
            n_bytes = PEAK * BYTES * self.n_rows * len(columns)
            if n_bytes <= free_memory():
                loaded = self._collect(frame)
                return Rows({x: self._values(x, loaded) for x in columns}, None, len(loaded))
        most = int(free_memory() / (2 * PEAK * BYTES * (1 + len(columns))))
        if not self._repeats(cells) and self._n_distinct(frame.head(4 * most), names) > most:
            raise ValueError(self._too_many(columns, sample, most))
        grouped = self._grouped(frame, names, most)
        if len(grouped) > most:
            raise ValueError(self._too_many(columns, sample, most))
        cells = self._cells(columns, grouped, grouped[_free_name(names)].to_numpy())
        if self._n_rows not in (None, cells.n_rows):
            raise ValueError(
                f"the table has {cells.n_rows} rows, and had {self._n_rows}: call table() and build the model again."
            )
        self._n_rows = cells.n_rows
        return _rows_of(columns, cells)

    def _repeats(self, sample: Cells) -> bool:
        """Return whether the engine has to group: for a sample with repeats, as many cells as make so many pairs of equal rows."""
        n, n_pairs = sample.n_rows, sample.n_rows - sample.n_cells
        if 2 * n_pairs >= n:
            return True
        if n < N_SAMPLE:
            return sample.n_cells <= MAX_DISTINCT_SHARE * n
        return bool(n_pairs) and n * n / (2 * n_pairs) <= MAX_DISTINCT_SHARE * self.n_rows

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

    def _too_many(self, columns: list[Column], sample: Any, most: int) -> str:
        named = {x.name: len(np.unique(self._values(x, sample))) for x in columns}
        worst = max(named, key=lambda name: named[name])
        size = as_text(BYTES * self.n_rows * len(columns))
        return (
            f"the columns {', '.join(named)} have more than {most} distinct rows, and {self.n_rows} rows, {size}, do not fit into"
            f" the memory that is free, {as_text(free_memory())}: round {worst} to fewer values in the table, or filter its rows."
        )

    def _cells(self, columns: list[Column], frame: Any, counts: np.ndarray | None = None) -> Cells:
        return Cells.summarize(
            {str(k): self._values(x, frame) for k, x in enumerate(columns)}, counts
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
            values = values.astype(config.floatX)
            if not np.isfinite(values).all():
                what = "NaN" if np.isnan(values).any() else "infinite values"
                raise ValueError(_fix(name, f"has {what}"))
            return values
        if dtype.is_integer():
            if len(values) and values.max() > np.iinfo(np.int64).max:
                raise ValueError(f'column "{name}" has integers beyond int64: cast it to float.')
            return values.astype(np.int64)
        return values.astype(bool)

    def _encoded(self, name: str, values: np.ndarray) -> np.ndarray:
        levels = self._sorted_levels(name)
        places = {level: k for k, level in enumerate(levels.tolist())}
        distinct, inverse = np.unique(np.asarray(values), return_inverse=True)
        try:
            codes = np.array([places[x] for x in distinct.tolist()], np.int64)
        except KeyError as error:
            raise ValueError(
                f'column "{name}" has a new level {error}: drop such rows, or call table() and build the model again.'
            ) from None
        return codes[inverse]

    def _sorted_levels(self, column: str) -> np.ndarray:
        if self._levels_of is not None:
            return self._levels_of._sorted_levels(column)
        if column not in self._levels:
            self._check_unchanged()
            stored = self._stored.read("levels", column)
            if stored is not None:
                self._levels[column] = np.array(json.loads(stored["json"].tobytes()))
                return self._levels[column]
            found = self._grouped(self._source.frame.select(column), [column], MAX_LEVELS)
            if found[column].null_count():
                raise ValueError(_fix(column, "has missing values"))
            if len(found) > MAX_LEVELS:
                raise ValueError(f'column "{column}" has more than {MAX_LEVELS} levels: join some.')
            levels = self._levels[column] = np.unique(found[column].to_numpy())
            text = json.dumps(levels.tolist()).encode()
            self._stored.write({"json": np.frombuffer(text, np.uint8)}, "levels", column)
        return self._levels[column]

    def _placeholder(self, column: Column) -> SharedVariable:
        if column not in self._placeholders:
            self._refuse_others(column)
            part = ("first rows", column.name, column.is_coded)
            stored = self._stored.read(*part)
            values = self._values(column, self._head) if stored is None else stored["values"]
            if stored is None:
                self._stored.write({"values": values}, *part)
            self._placeholders[column] = placeholder(column, values)
        return self._placeholders[column]

    @cached_property
    def _head(self) -> Any:
        self._check_unchanged()
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


def table(source: Any, *, key: str | None = None) -> Table:
    """Return a table whose rows stay where they are: a posterior of all rows, without loading one.

    The columns of the table are placeholders in a model. :func:`~pymc_fastlogp.sample` asks the engine for the distinct
    rows of each likelihood with their counts (``GROUP BY columns: count``), and evaluates the log density once for each. The
    posterior is that of all rows, up to round-off. Likelihoods over few distinct rows gain: counts, categories and rounded
    covariates. Rows that hardly repeat are loaded if they fit into memory.

    Parameters
    ----------
    source : path or frame
        Path or glob of Parquet or CSV files, which DuckDB reads; a DuckDB relation; a Polars DataFrame or LazyFrame; a pandas or Dask
        DataFrame; or a PyArrow table. Filters and new columns are the business of the frame.
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
    n: 10000 rows of a table are 2 distinct rows with counts (pandas: GROUP BY n, shop).
    """
    return Table(source_of(source, key))


def _rows_of(columns: Sequence[Column], cells: Cells) -> Rows:
    values = {x: cells.columns[str(k)] for k, x in enumerate(columns)}
    return Rows(values, cells.counts.astype(np.float64), cells.n_rows)


def _kind(dtype: Any) -> np.dtype:
    """Return the dtype of a placeholder of values, or of codes."""
    if dtype.is_float() or dtype.is_decimal():
        return np.dtype(config.floatX)
    return np.dtype(bool if str(dtype) == "Boolean" else np.int64)


def _free_name(names: Sequence[str]) -> str:
    """Return a name for the column of counts that no other column has."""
    name = "n_rows"
    while name in names:
        name += "_"
    return name


def _fix(column: str, problem: str) -> str:
    return f'column "{column}" {problem}: drop or fill such rows in the table, as by table(frame.filter(...)).'
