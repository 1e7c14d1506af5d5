"""Fits on processes, on loky and on Dask, with workers that are killed."""

import os
import signal
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

import pymc_fastlogp
from tests.many.conftest import OPTIONS, InThisProcess, data_set, fit_all, means

DATA = {k: data_set(10 * k) for k in range(5)}


def expected_means(model) -> dict:
    return means(fit_all(model, DATA, executor=InThisProcess(), keep=["mu"]))


def killing(folder: Path, value: float, times: int):
    """Return a function that kills its process, a number of times, for the data set around a value."""

    def keep(idata):
        if abs(float(idata.posterior["mu"].mean()) - value) < 0.5:
            kills = len([*folder.iterdir()])
            if kills < times:
                (folder / str(kills)).touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return idata.posterior["mu"].mean()

    return keep


@pytest.mark.usefixtures("own_pool")
class TestOwnProcesses:
    def test_draws_do_not_depend_on_the_executor(self, model):
        found = means(fit_all(model, DATA, keep=["mu"]))
        assert found == expected_means(model)

    def test_each_usable_core_has_a_process(self, model):
        fits = fit_all(model, DATA, keep=lambda _: os.getpid())
        assert len({fit.value for fit in fits}) == 2

    def test_fits_come_in_order_on_request(self, model):
        fits = fit_all(model, DATA, keep=["mu"], in_order=True)
        assert [fit.key for fit in fits] == [*DATA]

    def test_a_fit_that_ends_its_process_is_an_error_and_the_others_go_on(self, model, tmp_path):
        keep = killing(tmp_path, DATA[2]["seen"].mean(), times=9)
        fits = {fit.key: fit for fit in fit_all(model, DATA, keep=keep)}
        assert isinstance(fits[2].error, BrokenExecutor)
        assert [k for k in DATA if fits[k].error is None] == [0, 1, 3, 4]

    def test_a_process_that_dies_once_costs_no_fit(self, model, tmp_path):
        keep = killing(tmp_path, DATA[2]["seen"].mean(), times=1)
        assert all(fit.error is None for fit in fit_all(model, DATA, keep=keep))

    def test_a_loop_that_ends_early_ends_the_processes(self, model):
        from multiprocessing import active_children

        fits = pymc_fastlogp.sample_many(model, DATA, keep=["mu"], **OPTIONS)
        next(fits)
        fits.close()
        assert not active_children()

    def test_a_generator_of_data_sets_is_read_as_workers_are_free(self, model):
        read = []

        def data():
            for k in range(30):
                read.append(k)
                yield data_set(k)

        fits = pymc_fastlogp.sample_many(model, data(), keep=["mu"], **OPTIONS)
        next(fits)
        assert len(read) < 10
        fits.close()


def test_spawned_processes(model):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        found = means(fit_all(model, {1: DATA[1]}, executor=executor, keep=["mu"]))
    assert found[1] == expected_means(model)[1]


def test_a_loky_executor_that_breaks_is_named_and_a_store_goes_on(model, tmp_path, monkeypatch):
    loky = pytest.importorskip("joblib.externals.loky")
    monkeypatch.setattr("pymc_fastlogp.many.pools.MOST_SUBMITTED", 1)
    (tmp_path / "kills").mkdir()
    kill = killing(tmp_path / "kills", DATA[2]["seen"].mean(), times=1)

    def keep(idata):
        kill(idata)
        return idata.posterior.to_dataset()[["mu"]]

    options = OPTIONS | {"keep": keep, "store": tmp_path / "fits"}
    executor = loky.ProcessPoolExecutor(1)
    with pytest.raises(RuntimeError, match="the executor broke"):
        list(pymc_fastlogp.sample_many(model, DATA, executor=executor, **options))
    executor.shutdown(kill_workers=True)
    fits = [*pymc_fastlogp.sample_many(model, DATA, executor=InThisProcess(), **options)]
    assert [fit.key for fit in fits if fit.was_stored] == [0, 1]
    assert means(fits) == expected_means(model)


@pytest.fixture(scope="module")
def dask_client():
    distributed = pytest.importorskip("distributed")
    options = {"dashboard_address": None, "threads_per_worker": 1}
    with distributed.LocalCluster(2, **options) as cluster, distributed.Client(cluster) as client:
        yield client


def test_fits_of_a_dask_worker_that_dies_run_on_another(model, dask_client, tmp_path):
    kill = killing(tmp_path, DATA[2]["seen"].mean(), times=1)

    def keep(idata):
        kill(idata)
        return idata.posterior.to_dataset()[["mu"]]

    found = means(fit_all(model, DATA, executor=dask_client.get_executor(), keep=keep))
    assert found == expected_means(model)
    assert len([*tmp_path.iterdir()]) == 1


def test_an_executor_that_refuses_at_once_is_named(model):
    class Broken(InThisProcess):
        def submit(self, function, /, *args, **kwargs):
            raise BrokenExecutor("gone")

    data = (data_set(k) for k in range(2000))
    fits = pymc_fastlogp.sample_many(model, data, executor=Broken(), **OPTIONS)
    assert isinstance(next(fits).error, BrokenExecutor)
    with pytest.raises(RuntimeError, match="the executor broke"):
        next(fits)
