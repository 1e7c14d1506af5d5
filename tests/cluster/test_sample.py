"""``sample(workers=...)`` on processes: draws, and workers that are lost."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import xarray as xr

import pymc_fastlogp
from pymc_fastlogp.sampling.cluster import sharded_likelihood
from pymc_fastlogp.sampling.cluster.sharded_likelihood import ShardedLikelihood, WorkersLostError
from tests.cluster.conftest import OPTIONS, logit, rows
from tests.slices import examples

pytestmark = pytest.mark.usefixtures("few_partitions")


@pytest.fixture(scope="module")
def model() -> Any:
    return logit(pymc_fastlogp.table(rows()))


@pytest.fixture(scope="module")
def cluster(distributed: Any) -> Iterator[Any]:
    options = {"dashboard_address": ":0", "threads_per_worker": 1}
    with distributed.LocalCluster(n_workers=1, **options) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def sampled(cluster: Any, distributed: Any, model: Any) -> Callable[..., Any]:
    """Return the function that samples on a number of workers, with draws of all variables."""

    def sample(n_workers: int, **options: Any) -> Any:
        cluster.scale(n_workers)
        with distributed.Client(cluster) as client:
            client.wait_for_workers(n_workers)
            return pymc_fastlogp.sample(model=model, workers=client, **OPTIONS | options)

    return sample


@pytest.fixture(scope="module")
def expected(sampled: Any, module_partitions: None) -> Any:
    """Draws on one worker."""
    return sampled(1)


@pytest.fixture(scope="module")
def module_partitions() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymc_fastlogp.tables.partitions.FEWEST_PARTITIONS", 3)
        yield


def same_draws(a: Any, b: Any) -> bool:
    names = ("a", "b", "tau")
    return all(a.posterior[x].values.tobytes() == b.posterior[x].values.tobytes() for x in names)


@pytest.fixture
def at_evaluation(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that lets something happen before an evaluation with a number."""

    def happens(number: int, event: Callable[[ShardedLikelihood], None]) -> None:
        evaluate, count = ShardedLikelihood.evaluate, iter(range(10**6))

        def evaluated(self: ShardedLikelihood, point: np.ndarray) -> np.ndarray:
            if next(count) == number:
                event(self)
            return evaluate(self, point)

        monkeypatch.setattr(ShardedLikelihood, "evaluate", evaluated)

    return happens


def kill(likelihood: ShardedLikelihood) -> None:
    """Kill the worker of the first actor."""
    pids = likelihood._client.run(os.getpid)
    os.kill(pids[likelihood._actors[0].address], signal.SIGKILL)


def test_draws_do_not_depend_on_the_number_of_workers(expected, sampled):
    for n_workers in examples([2], [2, 3]):
        assert same_draws(sampled(n_workers), expected)


def test_initial_values_are_named_by_variables_of_the_model(here, table):
    model = logit(table)
    values = {model["b"]: 0.25}
    options = {"draws": 1, "tune": 1, "discard_tuned_samples": False, "nuts": {"maxdepth": 1}}
    found = [
        pymc_fastlogp.sample(
            model=model,
            workers=here,
            initvals=initvals,
            compile_kwargs={"jitter_rvs": set()},
            **OPTIONS | options,
        )
        for initvals in (values, {"b": 0.25}, None)
    ]
    assert same_draws(found[0], found[1])
    assert not same_draws(found[0], found[2])


def test_draws_are_those_of_one_process_up_to_rounding(expected, model):
    # Rounding grows along a trajectory, so that the first draws alone agree.
    whole = pymc_fastlogp.sample(model=model, **OPTIONS | {"discard_tuned_samples": False})
    assert abs(float(whole.posterior["b"].mean() - expected.posterior["b"].mean())) < 0.01
    assert {*whole.posterior.data_vars} == {*expected.posterior.data_vars}


def test_a_worker_that_is_killed_changes_no_draw(expected, sampled, at_evaluation, caplog):
    at_evaluation(40, kill)
    assert same_draws(sampled(2), expected)
    assert "its rows are now on" in caplog.text


def test_the_only_worker_is_started_again(expected, sampled, at_evaluation):
    at_evaluation(40, kill)
    assert same_draws(sampled(1), expected)


def test_draws_so_far_are_in_the_error_if_all_workers_are_gone(
    sampled, at_evaluation, monkeypatch, cluster
):
    monkeypatch.setattr(sharded_likelihood, "LONGEST_WAIT", 0.5)
    at_evaluation(600, lambda likelihood: cluster.scale(0) or likelihood._client.retire_workers())
    with pytest.raises(
        WorkersLostError, match=r"stopped after \d+ draws of each chain: .*no worker"
    ) as raised:
        sampled(1, tune=20, draws=1000)
    posterior = raised.value.idata.posterior
    assert 0 < posterior.sizes["draw"] < 1000
    assert np.isfinite(posterior["b"]).all()


def test_draws_in_a_store_are_those_in_memory(expected, sampled, tmp_path):
    idata = sampled(1, store=tmp_path / "draws")
    assert not idata.posterior["b"].variable._in_memory
    assert same_draws(idata, expected)
    assert idata.groups == expected.groups
    stored = xr.open_datatree(tmp_path / "draws", engine="zarr", consolidated=False)
    assert {*expected.posterior} <= {*stored["posterior"]}


def test_a_store_that_is_not_empty_is_refused_before_rows_are_read(here, table, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="is not empty: give store a new path"):
        pymc_fastlogp.sample(model=logit(table), workers=here, store=tmp_path, **OPTIONS)


def test_a_store_has_the_draws_so_far_if_all_workers_are_gone(
    sampled, at_evaluation, monkeypatch, cluster, tmp_path
):
    monkeypatch.setattr(sharded_likelihood, "LONGEST_WAIT", 0.5)
    at_evaluation(600, lambda likelihood: cluster.scale(0) or likelihood._client.retire_workers())
    with pytest.raises(WorkersLostError, match=r"stopped after \d+ draws") as raised:
        sampled(1, tune=20, draws=1000, store=tmp_path / "draws")
    posterior = raised.value.idata.posterior
    assert 0 < posterior.sizes["draw"] < 1000
    assert np.isfinite(posterior["b"]).all()
