"""Actors that do not answer, that raise, or that belong to another client than the current one."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pymc_fastlogp
from pymc_fastlogp.models.table_rows import split_tables
from pymc_fastlogp.sampling.cluster import team
from pymc_fastlogp.sampling.cluster.team import Team, WorkersLostError, _groups
from tests.cluster.conftest import logit

pytestmark = pytest.mark.usefixtures("few_parts")

POINT = np.linspace(-1, 1, 6)
SHAPES = {"tau_log__": (), "a": (4,), "b": ()}


class Silent:
    """Actor that does not answer."""

    async def evaluate(self, point: np.ndarray) -> Any:
        await asyncio.sleep(3600)


class Raising:
    """Actor whose evaluation raises."""

    def __init__(self, error: Exception):
        self._error = error

    async def evaluate(self, point: np.ndarray) -> Any:
        raise self._error


@pytest.fixture
def likelihoods(table):
    return split_tables(logit(table)).likelihoods


def with_actor(members, **changes):
    """Exchange the actor of the first member."""
    return (replace(members[0], **changes), *members[1:])


def test_a_worker_that_dask_has_removed_is_replaced_though_it_is_silent(
    here, likelihoods, monkeypatch
):
    monkeypatch.setattr(team, "PATIENCE", 0.1)
    with Team(here, likelihoods, SHAPES, 1) as shards:
        expected = shards.evaluate(POINT)
        shards._members = with_actor(shards._members, actor=Silent(), address="tcp://gone")
        assert shards.evaluate(POINT).tobytes() == expected.tobytes()
        assert all(not isinstance(x.actor, Silent) for x in shards._members)


@pytest.mark.parametrize("error", [OSError("closed"), RuntimeError("lost"), KeyError("Shards-1")])
def test_a_lost_actor_is_replaced_on_another_worker(here, likelihoods, error):
    with Team(here, likelihoods, SHAPES, 1) as shards:
        expected = shards.evaluate(POINT)
        lost = shards._members[0].address
        shards._members = with_actor(shards._members, actor=Raising(error))
        assert shards.evaluate(POINT).tobytes() == expected.tobytes()
        assert lost not in {x.address for x in shards._members}


def test_an_error_of_an_evaluation_is_raised(here, likelihoods):
    with Team(here, likelihoods, SHAPES, 1) as shards:
        shards._members = with_actor(shards._members, actor=Raising(MemoryError("full")))
        with pytest.raises(MemoryError, match="full"):
            shards.evaluate(POINT)


def test_workers_that_are_lost_again_and_again_end_an_evaluation(here, likelihoods, monkeypatch):
    with Team(here, likelihoods, SHAPES, 1) as shards:
        members = with_actor(shards._members, actor=Raising(OSError("closed")))
        shards._members = members
        monkeypatch.setattr(shards, "_built", lambda numbers, lost: members[:1])
        with pytest.raises(WorkersLostError, match="in a row were lost at one evaluation"):
            shards.evaluate(POINT)


def test_a_client_that_is_not_the_current_one(distributed, here, likelihoods):
    options = {"processes": False, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(n_workers=1, **options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        Team(client, likelihoods, SHAPES, 1) as shards,
    ):
        found = shards.evaluate(POINT)
    with Team(here, likelihoods, SHAPES, 1) as shards:
        assert shards.evaluate(POINT).tobytes() == found.tobytes()


def test_partitions_of_dask_are_shards(here, table):
    dask = pytest.importorskip("dask.dataframe")
    frame = table._source.frame.to_native()
    partitions = dask.from_pandas(frame, npartitions=3, sort=False)
    expected = split_tables(logit(table)).likelihoods
    found = split_tables(logit(pymc_fastlogp.table(partitions))).likelihoods
    with Team(here, expected, SHAPES, 1) as a, Team(here, found, SHAPES, 1) as b:
        assert len(b._parts) == 3
        assert a.evaluate(POINT).tobytes() == b.evaluate(POINT).tobytes()


def test_shards_are_shared_by_threads():
    numbers = range(12)
    assert _groups(numbers, {"a": 1, "b": 2}) == {"a": range(4), "b": range(4, 12)}
    assert _groups(numbers[:2], {"a": 1, "b": 1, "c": 1}) == {"a": range(1), "c": range(1, 2)}
