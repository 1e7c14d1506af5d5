"""Ctrl-C raises KeyboardInterrupt during a compilation and leaves a valid cache; during sampling it returns the draws so far, as nutpie does."""

import os
import signal
import subprocess
import sys
from textwrap import dedent
from unittest.mock import patch

import numpy as np
import pytest

import pymc_fastlogp
from tests.conftest import REPOSITORY, with_flags
from tests.faults.models import X, grouped

PATIENCE = 20

# With nutpie comes JAX, where it is installed: an interrupt in a function that its extension calls is lost.
COMPILES = """
    import sys
    sys.modules["jax"] = None
    import nutpie
    import numpy as np
    import pymc_fastlogp
    from tests.faults.models import X, grouped
    print("ready", flush=True)
    for k in range(1000):
        pymc_fastlogp.compile_pymc_model(grouped("poisson", X + k))
    """
SAMPLES = """
    import pymc_fastlogp
    from tests.faults.models import grouped
    options = {"chains": 2, "cores": 2, "progressbar": False, "quiet": True}
    pymc_fastlogp.sample(10, tune=10, model=grouped("poisson"), **options)
    print("ready", flush=True)
    with pymc_fastlogp.config.switched(ON):
        idata = pymc_fastlogp.sample(10_000_000, tune=100, model=grouped("poisson"), **options)
    print(0 < idata.posterior.sizes["draw"] < 10_000_000)
    """
SAYS = """
    import numpy as np
    import pymc_fastlogp
    from tests.faults.models import X, grouped
    for k in range(3):
        compiled = pymc_fastlogp.compile_pymc_model(grouped("poisson", X + k))
        print(repr(float(compiled.logp_dlogp(np.zeros(compiled.n_dim))[0])))
    """


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a script whose folders of models and of object code are those of the test."""

    def started(source):
        place = tmp_path / "cache"
        flags = {
            "PYTHONPATH": str(REPOSITORY),
            "PYTENSOR_FLAGS": with_flags(f"base_compiledir={place}"),
            "PYMC_FASTLOGP_CACHE": str(place / "models"),
        }
        # A process that a shell starts in the background ignores Ctrl-C, and so do its children.
        listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        command = [sys.executable, "-c", listen + dedent(source)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env=os.environ | flags, **pipes)

    return started


def interrupted(process, after):
    """Send Ctrl-C some seconds after the script is ready; return what it said, its errors and its status."""
    assert process.stdout.readline() == "ready\n"
    # JAX, where it is imported, has the collector call a function of Python, and an exception in there is lost: once more.
    for patience in (after, PATIENCE, PATIENCE, PATIENCE):
        try:
            said, errors = process.communicate(timeout=patience)
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
    else:
        process.kill()
        said, errors = process.communicate()
        raise AssertionError(errors)
    return said, errors, process.returncode


@pytest.mark.parametrize(
    "after", [1.0, *(pytest.param(0.3 * k, marks=pytest.mark.slow) for k in range(1, 7))]
)
def test_interrupted_compilation_leaves_a_usable_cache(after, start):
    _, errors, status = interrupted(start(COMPILES), after)
    assert errors.strip().splitlines()[-1].startswith("KeyboardInterrupt")
    assert status == -signal.SIGINT
    found, _ = start(SAYS).communicate()
    assert [*map(float, found.split())] == [_logp(X + k) for k in range(3)]


def _logp(x):
    """Return the logp of a model that is compiled without the cache."""
    with patch.dict("os.environ", {"PYMC_FASTLOGP_CACHE": "0"}):
        compiled = pymc_fastlogp.compile_pymc_model(grouped("poisson", x))
    return float(compiled.logp_dlogp(np.zeros(compiled.n_dim))[0])


@pytest.mark.slow
@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
def test_interrupted_sampling_returns_draws(on, start):
    # Without the plugin Numba compiles first.
    said, errors, status = interrupted(start(SAMPLES.replace("ON", str(on))), 2.0 if on else 30.0)
    assert (said, status) == ("True\n", 0), errors


# A Ctrl-C at a moment at which no handler runs: after the sampler is made, or while the sampler is stopped.
OUTLIVED = """
    import sys
    sys.modules["jax"] = None
    import time
    from nutpie import _lib
    import pymc_fastlogp
    from pymc_fastlogp._upstream import nutpie_library
    from tests.faults.models import grouped

    def interrupt(*_):
        raise KeyboardInterrupt

    class Sampler:
        wait = abort = interrupt

        def __init__(self, sampler):
            self.sampler = sampler

    class PySampler:
        make = _lib.PySampler.from_pymc

        @classmethod
        def from_pymc(cls, *arguments):
            sampler = cls.make(*arguments)
            if MOMENT == "made":
                time.sleep(0.3)
                interrupt()
            return Sampler(sampler)

    _lib.PySampler = PySampler
    if SAMPLER == "nutpie.sample":
        nutpie_library.RELEASES = ()
    print("ready", flush=True)
    options = {"chains": 4, "cores": 2, "progressbar": False, "quiet": True}
    pymc_fastlogp.sample(100_000, store=FOLDER, model=grouped("poisson"), **options)
    """


@pytest.mark.parametrize("sampler", ["library", "nutpie.sample"])
@pytest.mark.parametrize("moment", ["made", "stopped"])
def test_no_thread_of_nutpie_outlives_the_interpreter(moment, sampler, start, tmp_path):
    values = {"FOLDER": str(tmp_path / "draws"), "MOMENT": moment, "SAMPLER": sampler}
    source = OUTLIVED
    for name, value in values.items():
        source = source.replace(name, repr(value))
    _, errors = (process := start(source)).communicate(timeout=120)
    assert process.returncode == -signal.SIGINT, errors
    assert errors.strip().endswith("KeyboardInterrupt")


STORES = """
    import sys
    sys.modules["jax"] = None
    import arviz, nutpie, obstore, zarr
    import pymc_fastlogp
    from tests.faults.models import grouped
    options = {"chains": 4, "cores": 2, "progressbar": False}
    pymc_fastlogp.sample(10, tune=10, model=grouped("poisson"), **options)
    print("ready", flush=True)
    idata = pymc_fastlogp.sample(100_000, store=FOLDER, model=grouped("poisson"), **options)
    print(idata.posterior.sizes["draw"] < 100_000 and not idata.posterior["a"].isnull().any().item())
    """


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.5, 1.0, 2.0, 4.0])
def test_interrupted_sampling_to_a_store_exits(after, start, tmp_path):
    source = STORES.replace("FOLDER", repr(str(tmp_path / "draws")))
    said, errors, status = interrupted(start(source), after)
    assert status == 0, errors
    assert said.splitlines()[-1] == "True", errors
