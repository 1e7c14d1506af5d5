"""Helper threads: equal draws for any number of threads, and no hang or leak, whatever ends first."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from ctypes import CFUNCTYPE, c_int64, c_void_p, cast
from textwrap import dedent

import numpy as np
import pymc as pm
import pytest

import pymc_fastlogp
from pymc_fastlogp.kernel.threads import helpers
from pymc_fastlogp.sampling.threads import ENVIRONMENT_VARIABLE, n_helpers, threads_per_chain
from tests.conftest import REPOSITORY
from tests.slices import examples

pytestmark = pytest.mark.skipif(
    not helpers.is_supported(), reason="helpers need futex and atomics of Linux"
)

N, GROUPS = 20_000, 50
# Seconds after which a process hangs.
PATIENCE = 120


def long_model():
    """Return a model whose likelihood is a long loop."""
    rng = np.random.default_rng(0)
    group, x = rng.integers(GROUPS, size=N), rng.normal(size=N)
    with pm.Model() as model:
        a = pm.Normal("a", shape=GROUPS)
        b = pm.Normal("b")
        pm.Bernoulli("y", logit_p=a[group] + b * x, observed=rng.integers(2, size=N))
    return model


def running():
    """Return the helper threads that run."""
    return [thread for thread in threading.enumerate() if thread.name == helpers.NAME]


def ends_soon():
    """Return whether all helpers end in a few seconds."""
    end = time.monotonic() + 10
    while running() and time.monotonic() < end:
        time.sleep(0.01)
    return not running()


def test_draws_are_equal_for_any_number_of_threads():
    options = {"tune": 20, "progressbar": False, "quiet": True, "random_seed": 1, "cores": 2}

    def draw(**more):
        idata = pymc_fastlogp.sample(15, model=long_model(), chains=3, **options, **more)
        return idata.posterior

    alone = draw(threads=1)
    for threads in (None, 2, 3, 8):
        assert alone.equals(draw(threads=threads))
        assert ends_soon()


def test_compiled_model_has_helpers_until_it_is_freed():
    compiled = pymc_fastlogp.compile_pymc_model(long_model(), threads=3)
    assert len(running()) >= 2
    value, gradient = compiled.logp_dlogp(np.full(compiled.n_dim, 0.1))
    del compiled
    assert ends_soon()
    alone = pymc_fastlogp.compile_pymc_model(long_model(), threads=1)
    assert not running()
    expected, expected_gradient = alone.logp_dlogp(np.full(alone.n_dim, 0.1))
    assert value == expected
    np.testing.assert_array_equal(gradient, expected_gradient)


def test_models_that_are_dropped_leave_no_threads():
    for _ in range(examples(15, 50)):
        compiled = pymc_fastlogp.compile_pymc_model(long_model(), threads=2)
        compiled.logp_dlogp(np.zeros(compiled.n_dim))
        del compiled
    assert ends_soon()


def test_more_callers_than_slots():
    compiled = pymc_fastlogp.compile_pymc_model(long_model(), threads=2)
    points = np.random.default_rng(0).normal(size=(12, compiled.n_dim)) / 10
    alone = [compiled.logp_dlogp(x) for x in points]

    def evaluate(k):
        for _ in range(100):
            value, gradient = compiled.logp_dlogp(points[k])
            assert value == alone[k][0]
            np.testing.assert_array_equal(gradient, alone[k][1])

    with ThreadPoolExecutor(len(points)) as pool:
        list(pool.map(evaluate, range(len(points))))


# Python warns of other threads at each fork.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_process_evaluates_alone():
    compiled = pymc_fastlogp.compile_pymc_model(long_model(), threads=2)
    x = np.zeros(compiled.n_dim)
    expected = compiled.logp_dlogp(x)[0]
    child = os.fork()
    if child == 0:
        os._exit(0 if all(compiled.logp_dlogp(x)[0] == expected for _ in range(50)) else 1)
    end = time.monotonic() + PATIENCE
    while (status := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < end:
        time.sleep(0.01)
    assert status == (child, 0)
    assert compiled.logp_dlogp(x)[0] == expected


SCRIPTS = {
    "ends while a thread evaluates": """
        import threading
        compiled = pymc_fastlogp.compile_pymc_model(long_model(), threads=3)
        def evaluate():
            while True:
                compiled.logp_dlogp(np.zeros(compiled.n_dim))
        threading.Thread(target=evaluate, daemon=True).start()
        """,
    "samples in a spawned process": """
        import multiprocessing
        from tests.threads.test_helpers import draw_two
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                assert pool.apply(draw_two) == 2
        """,
    "raises and ends while helpers wait": """
        compiled = pymc_fastlogp.compile_pymc_model(long_model(), threads=3)
        try:
            compiled.logp_dlogp(np.zeros(3))
        except ValueError:
            pass
        compiled.logp_dlogp(np.zeros(compiled.n_dim))
        """,
}


def draw_two():
    """Return the number of draws of a short run with two threads."""
    options = {"chains": 1, "progressbar": False, "quiet": True, "threads": 2}
    return pymc_fastlogp.sample(2, tune=2, model=long_model(), **options).posterior.sizes["draw"]


def script(text):
    start = """
        import numpy as np
        import pymc_fastlogp
        from tests.threads.test_helpers import long_model
        """
    return [sys.executable, "-c", dedent(start) + dedent(text)]


@pytest.mark.parametrize("name", SCRIPTS)
def test_process(name):
    done = subprocess.run(
        script(SCRIPTS[name]), cwd=REPOSITORY, timeout=PATIENCE, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_interrupted_sampling_returns_draws():
    text = """
        options = {"chains": 2, "cores": 2, "progressbar": False, "quiet": True, "threads": 2}
        pymc_fastlogp.sample(2, tune=2, model=long_model(), **options)
        print("ready", flush=True)
        idata = pymc_fastlogp.sample(1_000_000, tune=10, model=long_model(), **options)
        print(0 < idata.posterior.sizes["draw"] < 1_000_000)
        """
    child = subprocess.Popen(script(text), cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    time.sleep(3)
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=PATIENCE)
    assert (output, child.returncode) == ("True\n", 0)


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr("pymc_fastlogp.sampling.threads.usable_cores", lambda: 8)


@pytest.mark.usefixtures("eight_cores")
@pytest.mark.parametrize(
    ("n_chains", "n_cores", "expected"),
    [
        (2, None, 4),
        (4, None, 2),
        (1, None, 8),
        (3, None, 2),
        (8, None, 1),
        (20, None, 1),
        (2, 2, 1),
        (1, 3, 3),
        (1, 100, 8),
    ],
)
def test_chains_share_the_cores(n_chains, n_cores, expected):
    assert threads_per_chain(None, n_chains, n_cores) == expected
    assert n_helpers(None, n_chains, n_cores) == (expected - 1) * n_chains


@pytest.mark.usefixtures("eight_cores")
def test_given_numbers_come_first(monkeypatch):
    assert n_helpers(3, 4) == 8
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "2")
    assert n_helpers(None, 4) == 4
    assert n_helpers(1, 4) == 0


@pytest.mark.usefixtures("eight_cores")
def test_unknown_chains_are_those_of_nutpie(monkeypatch):
    assert n_helpers(None) == 0
    monkeypatch.setattr("pymc_fastlogp.sampling.threads.usable_cores", lambda: 16)
    # Two threads for each of eight chains.
    assert n_helpers(None) == 8


@pytest.mark.usefixtures("eight_cores")
def test_worker_processes_have_one_thread_for_a_chain(monkeypatch):
    monkeypatch.setattr("pymc_fastlogp.sampling.threads.parent_process", lambda: object())
    assert n_helpers(None, 1) == 0
    assert n_helpers(2, 1) == 1


@pytest.fixture
def started(monkeypatch):
    """Return the numbers of threads of all helpers that start."""
    numbers = []
    start = helpers.Helpers.__init__

    def init(self, n_threads, code):
        numbers.append(n_threads)
        start(self, n_threads, code)

    monkeypatch.setattr(helpers.Helpers, "__init__", init)
    return numbers


def small_model():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), observed=np.arange(5.0))
    return model


SHORT = {"draws": 3, "tune": 3, "progressbar": False, "quiet": True, "random_seed": 1}


@pytest.mark.usefixtures("eight_cores")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"chains": 2}, [6]),
        ({"chains": 1}, [7]),
        ({"chains": 2, "cores": 1}, []),
        ({"chains": 4, "cores": 4}, []),
        ({"chains": 1, "cores": 3}, [2]),
        ({"chains": 1, "threads": 1}, []),
        # nutpie's modules sample with these settings.
        ({"chains": 1, "cores": 3, "nuts": {"adaptation": "low_rank"}}, [2]),
    ],
)
def test_sample_uses_cores_that_chains_leave_idle(options, expected, started, monkeypatch):
    monkeypatch.setattr("pymc_fastlogp._upstream.pymc_sample.cpu_count", lambda: 8)
    idata = pymc_fastlogp.sample(model=long_model(), **SHORT | options)
    assert started == expected
    alone = pymc_fastlogp.sample(model=long_model(), **SHORT | options | {"threads": 1})
    assert idata.posterior.equals(alone.posterior)


@pytest.mark.usefixtures("eight_cores")
def test_models_without_long_loops_start_no_thread(started):
    pymc_fastlogp.sample(model=small_model(), chains=1, **SHORT)
    assert not started


@pytest.mark.usefixtures("eight_cores")
def test_many_fits_have_one_thread_each(started, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "2")
    options = {x: SHORT[x] for x in ("draws", "tune", "progressbar", "random_seed")}
    with ThreadPoolExecutor(1) as pool:
        [fit] = pymc_fastlogp.sample_many([long_model()], executor=pool, chains=1, **options)
    assert fit.result().posterior.sizes["draw"] == SHORT["draws"]
    assert not started


@pytest.mark.parametrize("threads", [0, -1])
def test_refuses_numbers_below_one(threads):
    with pytest.raises(ValueError, match="threads is"):
        pymc_fastlogp.compile_pymc_model(long_model(), threads=threads)


def test_refuses_other_words(monkeypatch):
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "many")
    with pytest.raises(ValueError, match="PYMC_FASTLOGP_THREADS is 'many'"):
        n_helpers(None)


def test_each_thread_claims_its_share_first():
    """A thread runs about the same chunks in each evaluation, whose data are in its caches."""
    compiled = pymc_fastlogp.compile_pymc_model(long_model(), threads=1)
    team = helpers.Helpers(1, compiled.compiled_logp_func._called)
    first: dict[int, int] = {}
    ready = threading.Barrier(2, timeout=PATIENCE)

    @CFUNCTYPE(None, c_void_p, c_int64)
    def task(_, number):
        if threading.get_ident() not in first:
            first[threading.get_ident()] = number
            ready.wait()

    run = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_int64)(team._functions.run)
    run(team._words.ctypes.data, cast(task, c_void_p), None, 8)
    team.close()
    assert sorted(first.values()) == [0, 4]
    assert first[threading.get_ident()] == 0
