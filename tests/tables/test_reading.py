"""Progress, interrupts and errors of engines while a table is read."""

import os
import signal
import subprocess
import sys
import time
from io import StringIO
from textwrap import dedent
from threading import Timer

import pymc as pm
import pytest
from rich.console import Console

import pymc_fastlogp
from pymc_fastlogp.models.table_rows import RowsRead, without_tables
from pymc_fastlogp.tables import progress
from pymc_fastlogp.tables.columns import column_of
from pymc_fastlogp.tables.expressions import expression_of_column
from pymc_fastlogp.tables.plan import Plan, Way
from pymc_fastlogp.tables.progress import progress_shown, reading
from pymc_fastlogp.tables.source import Source
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.usefixtures("engines")


def grouped(table, *names):
    """Return the plan of the distinct rows of columns."""
    columns = (column_of(table[name]) for name in names)
    return Plan(Way.GROUPED, (*(expression_of_column(x, "int64") for x in columns),))


@pytest.fixture
def terminal(monkeypatch):
    """Output to a terminal."""
    written = StringIO()
    monkeypatch.setattr(
        progress, "Console", lambda: Console(file=written, force_terminal=True, width=100)
    )
    return written


@pytest.mark.parametrize(("percent", "text"), [(-1.0, "0:00:00"), (50.0, "━")])
def test_a_line_shows_the_progress_of_the_engine_or_seconds(percent, text, terminal):
    with progress_shown(True), reading("DuckDB reads zone", lambda: percent):
        pass
    assert "DuckDB reads zone" in terminal.getvalue()
    assert text in terminal.getvalue()


def test_no_line_outside_of_a_terminal(monkeypatch):
    written = StringIO()
    monkeypatch.setattr(progress, "Console", lambda: Console(file=written))
    with progress_shown(True), reading("DuckDB reads zone", lambda: -1.0):
        pass
    assert not written.getvalue().strip()


@pytest.mark.parametrize(
    ("options", "is_shown"),
    [({}, True), ({"progressbar": False}, False), ({"quiet": True}, False)],
)
def test_sample_shows_progress_as_requested(options, is_shown, terminal, relation, monkeypatch):
    table = pymc_fastlogp.table(relation.limit(300))
    with pm.Model() as model:
        pm.Poisson("tips", pm.math.exp(pm.Normal("a")), observed=table["tips"])
    without_tables(model, RowsRead.SAMPLE)
    table._n_rows = 1  # stops the call after the rows were read
    with pytest.raises(ValueError, match=r"^the table has 300 rows, and had 1"):
        pymc_fastlogp.sample(model=model, **options)
    assert ("DuckDB reads tips" in terminal.getvalue()) == is_shown


@pytest.mark.parametrize("door", [pymc_fastlogp.explain, pymc_fastlogp.verify])
def test_explain_and_verify_show_progress(door, terminal, relation):
    table = pymc_fastlogp.table(relation.limit(300))
    with pm.Model() as model:
        pm.Poisson("tips", pm.math.exp(pm.Normal("a")), observed=table["tips"])
    door(model)
    read = "reads tips" if door is pymc_fastlogp.verify else "reads a sample of tips"
    assert f"DuckDB {read}" in terminal.getvalue()


def test_duckdb_tells_its_progress(files):
    source = pymc_fastlogp.table(files / "*.parquet")._source
    assert isinstance(source.percent(), float)
    source.connection.execute("SET progress_bar_time = 0")
    percent = []
    timer = Timer(0.2, lambda: percent.append(source.percent()))
    timer.start()
    source.connection.sql("SELECT sum(hash(i)) FROM range(30000000) t(i)").fetchall()
    timer.join()
    assert -1 <= percent[0] <= 100


READS_WITHOUT_END = """
    import signal
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import duckdb
    import pymc as pm
    import pymc_fastlogp
    from pymc_fastlogp.models.table_rows import RowsRead, without_tables
    connection = duckdb.connect()
    endless = connection.sql("SELECT i % 3 AS x FROM range(1000000000000) t(i)")
    table = pymc_fastlogp.table(endless, key="endless")
    with pm.Model() as model:
        pm.Poisson("x", pm.math.exp(pm.Normal("a")), observed=table["x"])
    without_tables(model, RowsRead.FIRST)
    print("ready", flush=True)
    try:
        without_tables(model)
    except KeyboardInterrupt:
        print(connection.sql("SELECT 3").fetchall())
"""


def test_an_interrupt_ends_the_query_and_stores_nothing(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", dedent(READS_WITHOUT_END)],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "PYMC_FASTLOGP_CACHE": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "ready\n"
        files = {*tmp_path.iterdir()}
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert output == "[(3,)]\n", errors
    assert {*tmp_path.iterdir()} == files


@pytest.fixture
def file(relation, tmp_path):
    path = tmp_path / "rides.parquet"
    relation.select("zone, noise").write_parquet(str(path))
    return path


def test_a_damaged_page_is_an_error_that_names_file_and_columns(file):
    table = pymc_fastlogp.table(file)
    plan = grouped(table, "zone", "noise")
    content = bytearray(file.read_bytes())
    middle = len(content) // 4
    content[middle : middle + len(content) // 2] = bytes(len(content) // 2)
    file.write_bytes(content)
    # Size and time are those of the file that was opened.
    source = table._source
    table._source = type(source)(source.frame, source.engine, source.pattern)
    with pytest.raises(RuntimeError) as raised:
        table.rows(plan)
    text = str(raised.value)
    assert text.startswith(f"DuckDB could not read the columns zone, noise of {file}: ")
    assert text.endswith("; look at the files, or write them again, then call table() again.")
    assert "\n" not in text
    assert raised.value.__cause__ is not None


def test_a_file_that_vanishes_while_it_is_read_is_named(file, monkeypatch):
    table = pymc_fastlogp.table(file)
    plan = grouped(table, "zone")
    monkeypatch.setattr(Source, "check_unchanged", lambda *_: None)
    file.unlink()
    with pytest.raises(RuntimeError, match=r"rides\.parquet has been removed since") as raised:
        table.rows(plan)
    assert raised.value.__cause__ is not None


def failing(frame):
    raise OSError("the disk is gone\nand more")


def polars_that_fails(relation):
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(relation.select("zone").to_arrow_table()).lazy()
    return frame.map_batches(failing, schema=frame.collect_schema())


def dask_that_fails(relation):
    dask = pytest.importorskip("dask.dataframe")
    frame = relation.select("zone").df()
    return dask.from_pandas(frame, npartitions=2).map_partitions(failing, meta=frame)


@pytest.mark.parametrize("make", [polars_that_fails, dask_that_fails])
def test_an_engine_that_raises_is_an_error_of_one_line(make, relation):
    table = pymc_fastlogp.table(make(relation))
    with pytest.raises(
        RuntimeError,
        match=r"^(Polars|Dask) could not read the columns zone of the table: .*the disk is gone",
    ) as raised:
        table["zone"]
    assert str(raised.value).endswith("; look at the frame's query, then call table() again.")
    assert "\n" not in str(raised.value)
    assert raised.value.__cause__ is not None


def test_files_are_read_without_a_progress_bar_if_duckdb_refuses_it(files, monkeypatch):
    """As in Jupyter without ipywidgets."""
    duckdb = pytest.importorskip("duckdb")
    connect = duckdb.connect

    class Connection:
        def __init__(self):
            self._connection = connect()

        def __getattr__(self, name):
            return getattr(self._connection, name)

        def execute(self, query, *arguments):
            if "progress_bar" in query:
                raise duckdb.InvalidInputException("required package 'ipywidgets' is missing")
            return self._connection.execute(query, *arguments)

    monkeypatch.setattr(duckdb, "connect", Connection)
    table = pymc_fastlogp.table(files / "*.parquet")
    assert table.n_rows == len(table)
    assert table._source.percent() < 0
