"""One compilation at a time."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

import pymc as pm
import pytest

from pymc_fastlogp.compilation.model_source import ModelSource
from pymc_fastlogp.models.compile_lock import compile_lock
from pymc_fastlogp.models.freeze import frozen_copy

SECONDS = 60


def test_threads_wait_for_each_other():
    inside = []

    def enter(k):
        with compile_lock(), compile_lock():
            inside.append(k)
            is_alone = inside == [k]
            Event().wait(0.01)
            inside.remove(k)
            return is_alone

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(enter, range(8)))


def test_a_forked_process_does_not_wait_for_a_thread_that_it_does_not_have():
    is_in, may_leave = Event(), Event()

    def stay():
        with compile_lock():
            is_in.set()
            may_leave.wait(SECONDS)

    def enter():
        with compile_lock():
            pass

    thread = Thread(target=stay)
    thread.start()
    is_in.wait(SECONDS)
    child = multiprocessing.get_context("fork").Process(target=enter)
    child.start()
    child.join(SECONDS)
    exitcode = child.exitcode
    child.kill()
    may_leave.set()
    thread.join()
    assert exitcode == 0


def test_a_thread_of_the_sampler_waits_before_it_compiles_a_start(monkeypatch):
    monkeypatch.setattr("pymc.initial_point.make_initial_point_fn", lambda **_: "made")
    with pm.Model() as model:
        pm.Normal("x")
    options = {"initial_points": None, "jitter_rvs": None, "default_initialization_strategy": ""}
    source = ModelSource(model, options, freeze=False)
    with ThreadPoolExecutor(1) as pool:
        with compile_lock():
            made = pool.submit(lambda: source.function)
            with pytest.raises(TimeoutError):
                made.result(0.2)
        assert made.result(SECONDS) == "made"


def test_a_model_is_frozen_by_one_thread_at_a_time():
    """PyMC sets initial values aside meanwhile: threads that did so at once left the user's model without any."""
    with pm.Model() as model:
        for name in "abcdefgh":
            pm.Normal(name, initval=1.0)
    with ThreadPoolExecutor(4) as pool:
        copies = [*pool.map(frozen_copy, [model] * 12)]
    values = [x for each in (model, *copies) for x in each.rvs_to_initial_values.values()]
    assert None not in values
