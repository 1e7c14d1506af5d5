"""Helper threads: equal draws for any number of threads, and no hang or leak, whatever ends first."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from textwrap import dedent

import numpy as np
import pymc as pm
import pytest

import pymc_fastlogp
from pymc_fastlogp.kernel.threads import helpers
from pymc_fastlogp.sampling.threads import ENVIRONMENT_VARIABLE, n_helpers
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

    alone = draw()
    for threads in (1, 2, 3, 8):
        assert alone.equals(draw(threads=threads))
        assert ends_soon()


def test_compiled_model_has_helpers_until_it_is_freed():
    compiled = pymc_fastlogp.compile_pymc_model(long_model(), threads=3)
    assert len(running()) >= 2
    value, gradient = compiled.logp_dlogp(np.full(compiled.n_dim, 0.1))
    del compiled
    assert ends_soon()
    alone = pymc_fastlogp.compile_pymc_model(long_model())
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


def test_number_of_helpers(monkeypatch):
    assert n_helpers(None, 4) == 0
    assert n_helpers(3, 4) == 8
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "2")
    assert n_helpers(None, 4) == 4
    assert n_helpers(1, 4) == 0


@pytest.mark.parametrize("threads", [0, -1])
def test_refuses_numbers_below_one(threads):
    with pytest.raises(ValueError, match="threads is"):
        pymc_fastlogp.compile_pymc_model(long_model(), threads=threads)


def test_refuses_other_words(monkeypatch):
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "many")
    with pytest.raises(ValueError, match="PYMC_FASTLOGP_THREADS is 'many'"):
        n_helpers(None)
