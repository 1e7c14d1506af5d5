"""Fixtures that all tests share."""

import gc
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pymc as pm
import pytensor
import pytest
from hypothesis import settings
from pytensor.compile.mode import Mode

import pymc_fastlogp
from pymc_fastlogp.registration import registered
from pymc_fastlogp.rules import RULES
from tests.lifted import exp_of_set
from tests.slices import mark_slow

REPOSITORY = Path(__file__).parents[1]


def with_flags(flags: str) -> str:
    """Return the flags of PyTensor that this process was started with, and others, which win."""
    return ",".join(filter(None, (os.environ.get("PYTENSOR_FLAGS"), flags)))


# For processes that must not import the plugin: before PyTensor compiles any C, it unpickles the keys of all that was compiled
# before, by whatever process, and so imports the modules of their classes.
WITHOUT_C = "cxx="

# A rewrite that raises fails its test, here and in the processes that tests start. Upstream would print a
# traceback and go on without it.
# PyTensor would walk the stack for each variable, a tenth of the time of tests that build graphs.
os.environ["PYTENSOR_FLAGS"] = with_flags("on_opt_error=raise,traceback__limit=0")
pytensor.config.on_opt_error = "raise"
pytensor.config.traceback__limit = 0

# The reference side runs in Python. PyTensor would compile its inner graphs with C, which takes longer than the test.
CXX, pytensor.config.cxx = pytensor.config.cxx, ""

MODE = pytensor.config.mode
# The graph as it is, in Python: nothing is rewritten or compiled.
PYTHON = Mode(linker="py", optimizer=None)

# The graphs of all test modules stay alive, so that a collection of garbage takes long and frees little.
COLLECTOR = gc.get_threshold()
SELDOM = 100_000
gc.set_threshold(SELDOM)

# A first example compiles; how long the others take says more of the machine than of the code.
settings.register_profile("same", deadline=None, derandomize=True, max_examples=15)
# For `make test-all`: more examples, and other ones each time.
settings.register_profile("fuzz", deadline=None)
settings.load_profile("same")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests before pytest selects them by their marks."""
    mark_slow(items)


@pytest.fixture(autouse=True)
def switched_on() -> None:
    """Start each test with the plugin on, whatever the environment or the last test left.

    Threads in which PyTensor alone compiles leave another mode; see :mod:`pymc_fastlogp.models.compile_lock`.
    """
    pymc_fastlogp.enable()
    pytensor.config.mode = MODE


@pytest.fixture
def with_c() -> Iterator[None]:
    """Let PyTensor compile C."""
    with pytensor.config.change_flags(cxx=CXX):
        yield


@pytest.fixture
def default_collector() -> Iterator[None]:
    """Collect garbage as often as Python does by default, for tests that measure memory."""
    gc.set_threshold(*COLLECTOR)
    yield
    gc.set_threshold(SELDOM)


@pytest.fixture(scope="session")
def lifted_model() -> pm.Model:
    """A model of two parameters whose logp is rewritten before its gradient is taken."""
    with pm.Model() as model:
        a = pm.Normal("a", shape=2)
        pm.Potential("lifted", -exp_of_set(a).sum())
    return model


@pytest.fixture
def firings(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the changes that each rule has made to graphs since the test began, by the rule's name."""
    counts: Counter[str] = Counter()

    def counted(name: str, transform: Callable) -> Callable:
        def transform_and_count(*args, **kwargs):
            result = transform(*args, **kwargs)
            counts[name] += bool(result)
            return result

        return transform_and_count

    for rule in RULES:
        rewriter = registered(rule)
        monkeypatch.setattr(rewriter, "transform", counted(rule.name, rewriter.transform))
    return counts


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a script in a fresh process, as a user would, with extra environment variables."""

    def run(source: str, **environment: str) -> subprocess.CompletedProcess[str]:
        flags = with_flags(environment.pop("PYTENSOR_FLAGS", ""))
        script = tmp_path / "script.py"
        script.write_text(dedent(source))
        return subprocess.run(
            [sys.executable, script],
            env=os.environ | {"PYTHONPATH": str(REPOSITORY), "PYTENSOR_FLAGS": flags} | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return run
