"""Actors that do not answer, that raise, or that belong to another client than the current one."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pymc_fastlogp
from pymc_fastlogp.models.row_likelihood import split_tables
from pymc_fastlogp.sampling.cluster import sharded_likelihood
from pymc_fastlogp.sampling.cluster.sharded_likelihood import (
    ShardedLikelihood,
    WorkersLostError,
    _groups,
)
from tests.cluster.conftest import logit

pytestmark = pytest.mark.usefixtures("few_partitions")

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


def with_actor(actors, **changes):
    """Exchange the proxy of the first actor."""
    return (replace(actors[0], **changes), *actors[1:])


def test_a_worker_that_dask_has_removed_is_replaced_though_it_is_silent(
    here, likelihoods, monkeypatch
):
    monkeypatch.setattr(sharded_likelihood, "PATIENCE", 0.1)
    with ShardedLikelihood(here, likelihoods, SHAPES, 1) as shards:
        expected = shards.evaluate(POINT)
        shards._actors = with_actor(shards._actors, proxy=Silent(), address="tcp://gone")
        assert shards.evaluate(POINT).tobytes() == expected.tobytes()
        assert all(not isinstance(x.proxy, Silent) for x in shards._actors)


@pytest.mark.parametrize("error", [OSError("closed"), RuntimeError("lost"), KeyError("Shards-1")])
def test_a_lost_actor_is_replaced_on_another_worker(here, likelihoods, error):
    with ShardedLikelihood(here, likelihoods, SHAPES, 1) as shards:
        expected = shards.evaluate(POINT)
        lost = shards._actors[0].address
        shards._actors = with_actor(shards._actors, proxy=Raising(error))
        assert shards.evaluate(POINT).tobytes() == expected.tobytes()
        assert lost not in {x.address for x in shards._actors}


def test_an_error_of_an_evaluation_is_raised(here, likelihoods):
    with ShardedLikelihood(here, likelihoods, SHAPES, 1) as shards:
        shards._actors = with_actor(shards._actors, proxy=Raising(MemoryError("full")))
        with pytest.raises(MemoryError, match="full"):
            shards.evaluate(POINT)


def test_workers_that_are_lost_again_and_again_end_an_evaluation(here, likelihoods, monkeypatch):
    with ShardedLikelihood(here, likelihoods, SHAPES, 1) as shards:
        actors = with_actor(shards._actors, proxy=Raising(OSError("closed")))
        shards._actors = actors
        monkeypatch.setattr(shards, "_built", lambda numbers, lost: actors[:1])
        with pytest.raises(WorkersLostError, match="in a row were lost at one evaluation"):
            shards.evaluate(POINT)


def test_a_client_that_is_not_the_current_one(distributed, here, likelihoods):
    options = {"processes": False, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(n_workers=1, **options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        ShardedLikelihood(client, likelihoods, SHAPES, 1) as shards,
    ):
        found = shards.evaluate(POINT)
    with ShardedLikelihood(here, likelihoods, SHAPES, 1) as shards:
        assert shards.evaluate(POINT).tobytes() == found.tobytes()


def test_partitions_of_dask_are_shards(here, table):
    dask = pytest.importorskip("dask.dataframe")
    frame = table._source.frame.to_native()
    partitions = dask.from_pandas(frame, npartitions=3, sort=False)
    expected = split_tables(logit(table)).likelihoods
    found = split_tables(logit(pymc_fastlogp.table(partitions))).likelihoods
    with (
        ShardedLikelihood(here, expected, SHAPES, 1) as a,
        ShardedLikelihood(here, found, SHAPES, 1) as b,
    ):
        assert len(b._partitions) == 3
        assert a.evaluate(POINT).tobytes() == b.evaluate(POINT).tobytes()


def test_shards_are_shared_by_threads():
    numbers = range(12)
    assert _groups(numbers, {"a": 1, "b": 2}) == {"a": range(4), "b": range(4, 12)}
    assert _groups(numbers[:2], {"a": 1, "b": 1, "c": 1}) == {"a": range(1), "c": range(1, 2)}
