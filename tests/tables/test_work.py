"""Work of reading a table: the number of queries is that of a small table, and the memory of the summary is that of its cells."""

from typing import NamedTuple

import numpy as np
import pymc as pm
import pytest

import pymc_fastlogp
from pymc_fastlogp.models.table_rows import without_tables
from pymc_fastlogp.tables import batches, source, summaries
from pymc_fastlogp.tables.cells import Cells
from pymc_fastlogp.tables.factors import Factors
from pymc_fastlogp.tables.query_cache import arrays_of

pytestmark = pytest.mark.usefixtures("engines")

BATCH = 10_000
N_ZONES = 20


def counts(rows):
    with pm.Model() as model:
        a, b = pm.Normal("a", shape=N_ZONES), pm.Normal("b")
        eta = a[rows["zone"]] + b * rows["night"]
        pm.Poisson("y", pm.math.exp(eta), observed=rows["tips"])
    return model


def gaussian(rows):
    with pm.Model() as model:
        a, b, sigma = pm.Normal("a", shape=N_ZONES), pm.Normal("b", shape=2), pm.HalfNormal("sigma")
        mu = a[rows["zone"]] + b[0] * rows["distance"] + b[1] * rows["hours"]
        pm.Normal("y", mu, sigma, observed=rows["fare"])
    return model


class Work(NamedTuple):
    """Queries of the engine, lengths of the batches that are summarized, summaries that are held at most, and the result."""

    queries: int
    batches: list[int]
    n_held: int
    summary: Cells | Factors

    @property
    def n_bytes(self) -> int:
        """Bytes of the result."""
        return sum(x.nbytes for x in arrays_of(self.summary).values())


def work_of(build, n_rows, monkeypatch):
    """Return the work of reducing a model of rows with the same cells for each number of rows."""
    rows = pytest.importorskip("duckdb").sql(f"""
        SELECT i % {N_ZONES} AS zone, i // 20 % 2 AS night, i % 7 AS tips, hash(i + 31) / 1e19 AS distance,
               hash(i + 37) / 1e19 AS hours, hash(i + 41) / 1e19 AS fare
        FROM range({n_rows}) t(i)
    """)
    queries, lengths, held = [], [], []

    def query(run, connection):
        queries.append(run)
        return run_query(run, connection)

    def summarize(plan, values):
        lengths.append(len(values[0]))
        return summarize_rows(plan, values)

    def report(n, n_cells):
        held.append(n_cells)

    run_query, summarize_rows = source.interruptible, summaries.summarize
    reader = batches.frames_of_duckdb

    def frames(relation, connection):
        queries.append(relation)
        return reader(relation, connection)

    with monkeypatch.context() as patched:
        patched.setattr(source, "interruptible", query)
        patched.setattr(batches, "frames_of_duckdb", frames)
        patched.setattr(summaries, "summarize", summarize)
        patched.setattr(summaries, "report", report)
        patched.setattr("pymc_fastlogp.tables.batches.BATCH", BATCH)
        patched.setattr("pymc_fastlogp.tables.sample.N_SCANNED", 8192)
        read = without_tables(build(pymc_fastlogp.table(rows))).tables["y"].rows
    assert read.n_rows == n_rows
    n_held = max(held, default=read.n_cells) // read.n_cells
    return Work(len(queries), lengths, n_held, read)


@pytest.mark.parametrize(("build", "kind"), [(counts, Cells), (gaussian, Factors)])
def test_a_larger_table_takes_longer_batches_alone(build, kind, monkeypatch):
    few, many = (work_of(build, n, monkeypatch) for n in (10_000, 1_000_000))
    assert isinstance(many.summary, kind)
    assert many.queries == few.queries
    assert many.n_bytes == few.n_bytes
    assert many.summary.n_cells == few.summary.n_cells
    if kind is Cells:
        assert not few.batches
        assert not many.batches  # the engine groups
        return
    assert sum(many.batches) == 1_000_000
    assert len(many.batches) == pytest.approx(100 * len(few.batches), rel=0.1)
    # Summaries of 1, 2, 4, ... batches.
    assert many.n_held <= 1 + np.log2(len(many.batches))
