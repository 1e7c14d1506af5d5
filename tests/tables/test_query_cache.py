"""Rows that were read of a table are found on disk by a later process, and only then."""

import logging
import os
import pickle

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_fastlogp
from pymc_fastlogp import file_cache
from pymc_fastlogp.models.table_rows import RowsRead, without_tables
from pymc_fastlogp.tables.cells import AllRows, Cells
from pymc_fastlogp.tables.factors import Factors
from pymc_fastlogp.tables.query_cache import PREFIX, arrays_of, summary_of
from pymc_fastlogp.tables.source import Source

pytestmark = pytest.mark.usefixtures("engines")

N_LEVELS = 3


@pytest.fixture
def folder(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv(file_cache.ENVIRONMENT_VARIABLE, str(folder))
    return folder


@pytest.fixture
def path(relation, tmp_path):
    path = tmp_path / "rides.parquet"
    relation.limit(5000).write_parquet(str(path))
    return path


@pytest.fixture
def reads(monkeypatch):
    """Frames that engines read."""
    reads = []
    collect = Source.collect

    def counted(self, frame):
        reads.append(frame)
        return collect(self, frame)

    monkeypatch.setattr(Source, "collect", counted)
    return reads


def build(table):
    with pm.Model(coords={"kind": table.levels("size")}) as model:
        size = pm.Normal("size", dims="kind")
        zone = pm.Normal("zone", shape=23)
        eta = size[table["size"]] + zone[table.codes("zone")]
        pm.Poisson("tips", pm.math.exp(eta), observed=table["tips"])
    return model


def rows_of(table):
    return without_tables(build(table)).tables["tips"]


def assert_equal_rows(ours, theirs):
    ours, theirs = arrays_of(ours.rows), arrays_of(theirs.rows)
    assert [*ours] == [*theirs]
    for name, x in ours.items():
        np.testing.assert_array_equal(x, theirs[name])
        assert x.dtype == theirs[name].dtype


def stored(folder):
    return sorted(x for x in folder.iterdir() if x.name.startswith(PREFIX))


def test_files_that_were_read_are_not_read_again(folder, path, reads):
    first = rows_of(pymc_fastlogp.table(path))
    assert reads
    reads.clear()
    table = pymc_fastlogp.table(path)
    again = rows_of(table)
    assert table.levels("size") == ["huge", "large", "small"]
    assert table.n_rows == 5000
    assert not reads
    assert not first.is_from_disk
    assert again.is_from_disk
    assert_equal_rows(again, first)


def test_a_name_of_the_user_finds_rows_of_a_frame(folder, relation, reads):
    frame = relation.limit(5000).df()
    first = rows_of(pymc_fastlogp.table(frame, key="rides"))
    again = rows_of(pymc_fastlogp.table(frame, key="rides"))
    assert again.is_from_disk
    assert_equal_rows(again, first)
    assert not rows_of(pymc_fastlogp.table(frame, key="others")).is_from_disk


def test_frames_without_a_key_are_not_stored(folder, relation):
    rows_of(pymc_fastlogp.table(relation.limit(5000).df()))
    assert not folder.exists()


def test_a_name_that_other_rows_had_is_not_trusted(folder, relation):
    """As far as columns and the number of rows tell."""
    frame = relation.limit(5000).df()
    rows_of(pymc_fastlogp.table(frame, key="rides"))
    for other in (frame.iloc[:-1], frame.assign(more=1), frame.astype({"tips": "int64"})):
        assert not rows_of(pymc_fastlogp.table(other, key="rides")).is_from_disk


@pytest.mark.parametrize("change", ["time", "size", "more"])
def test_files_that_changed_are_read_again(change, folder, path, relation):
    pattern = path.parent / "*.parquet"
    rows_of(pymc_fastlogp.table(pattern))
    if change == "time":
        os.utime(path, ns=(1, 1))
    elif change == "size":
        relation.limit(6000).write_parquet(str(path))
    else:
        relation.limit(10).write_parquet(str(path.with_name("more.parquet")))
    assert not rows_of(pymc_fastlogp.table(pattern)).is_from_disk


def damaged(content):
    return content[:-1] + bytes([content[-1] ^ 1])


HARM = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "one bit": damaged,
    "a pickle": lambda content: pickle.dumps(print),
}


@pytest.mark.parametrize("harm", HARM)
def test_damaged_files_are_replaced(harm, folder, path):
    first = rows_of(pymc_fastlogp.table(path))
    for file in stored(folder):
        file.write_bytes(HARM[harm](file.read_bytes()))
    again = rows_of(pymc_fastlogp.table(path))
    assert not again.is_from_disk
    assert_equal_rows(again, first)
    assert rows_of(pymc_fastlogp.table(path)).is_from_disk


def test_pickled_objects_are_not_loaded(folder, path, monkeypatch):
    """Also if their hash is right."""
    first = rows_of(pymc_fastlogp.table(path))
    files = file_cache.BoundedFiles(folder, PREFIX, 2**20)
    objects = folder / "objects.npz"
    np.savez(objects, n_rows=np.array([print]))
    for file in stored(folder):
        files.write(file.name, objects.read_bytes())
    assert_equal_rows(rows_of(pymc_fastlogp.table(path)), first)


def test_the_switch_of_the_cache_switches_it_off(path, monkeypatch, reads):
    monkeypatch.setenv(file_cache.ENVIRONMENT_VARIABLE, "0")
    for _ in range(2):
        reads.clear()
        assert not rows_of(pymc_fastlogp.table(path)).is_from_disk
        assert reads


def test_a_full_disk_warns_and_keeps_the_result(folder, path, monkeypatch, caplog):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_cache, "NamedTemporaryFile", full)
    with caplog.at_level(logging.WARNING, "pymc_fastlogp"):
        rows = rows_of(pymc_fastlogp.table(path))
    assert rows.rows.n_rows == 5000
    assert caplog.messages[0] == (
        f"the distinct rows of a table were not stored in {folder}, so that the next process reads the table again:"
        " No space left on device; free some space, or name another folder by PYMC_FASTLOGP_CACHE."
    )
    assert not stored(folder)


def test_an_interrupted_write_leaves_nothing(folder, path, monkeypatch):
    class Interrupted:
        def __init__(self, **kwargs):
            self._file = named(**kwargs)
            self.name = self._file.name

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self._file.close()

        def write(self, content):
            self._file.write(content[:100])
            raise KeyboardInterrupt

    named = file_cache.NamedTemporaryFile
    monkeypatch.setattr(file_cache, "NamedTemporaryFile", Interrupted)
    table = pymc_fastlogp.table(path)
    with pytest.raises(KeyboardInterrupt):
        table.levels("size")
    assert not [*folder.iterdir()]


def test_files_that_change_while_they_are_read_are_not_stored(folder, path, monkeypatch):
    table = pymc_fastlogp.table(path)
    model = build(table)
    without_tables(model, RowsRead.FIRST)  # reads a sample
    before = len(stored(folder))
    read = type(table)._read

    def changed(self, *arguments):
        rows = read(self, *arguments)
        os.utime(path, ns=(1, 1))
        return rows

    monkeypatch.setattr(type(table), "_read", changed)
    with pytest.raises(ValueError, match=r"rides\.parquet has changed since table\(\) read it"):
        without_tables(model)
    assert len(stored(folder)) == before


SUMMARIES = {
    "all rows": AllRows({"0": np.arange(3), "1": np.array([True, False, True])}),
    "cells": Cells.summarize({"0": np.array([1.5, -0.0, 1.5]), "1": np.arange(3) % 2}),
    "factors": Factors.summarize(
        {"0": np.arange(4) % 2}, {"1": np.arange(4) / 7, "2": 1e8 + np.arange(4) ** 2}
    ),
    "factors without keys": Factors.summarize({}, {"0": np.arange(4) / 7}),
}


@pytest.mark.parametrize("case", SUMMARIES)
def test_summaries_are_those_of_their_arrays(case):
    summary = SUMMARIES[case]
    again = summary_of(arrays_of(summary))
    assert type(again) is type(summary)
    for before, after in zip(arrays_of(summary).items(), arrays_of(again).items(), strict=True):
        assert before[0] == after[0]
        np.testing.assert_array_equal(before[1], after[1])
    again.merge(again)


def test_large_results_are_not_stored(folder, relation, monkeypatch):
    monkeypatch.setattr("pymc_fastlogp.tables.query_cache.LARGEST", 100)
    rows_of(pymc_fastlogp.table(relation.limit(300).df(), key="rides"))
    assert not [x for x in stored(folder) if x.stat().st_size > 1000]


def test_levels_of_text_are_kept_exactly(folder):
    levels = ["", " a", "a", "a\0", "é", "日本"]
    for _ in range(2):
        table = pymc_fastlogp.table(pd.DataFrame({"x": levels}), key="text")
        assert table.levels("x") == levels
        np.testing.assert_array_equal(table["x"].get_value(), np.arange(len(levels)))


def test_explain_says_that_rows_were_found_on_disk(folder, path):
    without_tables(build(pymc_fastlogp.table(path)))
    [first, *_] = pymc_fastlogp.explain(build(pymc_fastlogp.table(path))).sentences()
    assert first.endswith(" (DuckDB: GROUP BY zone, size, tips), found on disk.")


def test_the_log_tells_rows_that_were_read_before(folder, path, caplog):
    caplog.set_level(logging.INFO, logger="pymc_fastlogp")
    for end in ("(DuckDB)", "(DuckDB, read before)"):
        without_tables(build(pymc_fastlogp.table(path)))
        assert caplog.messages[-1].endswith(f"GROUP BY codes(zone), codes(size), tips {end}")
