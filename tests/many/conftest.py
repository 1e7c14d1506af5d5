"""A small model, its data sets, and executors that all tests of many models share."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future

import numpy as np
import pymc as pm
import pytest

import pymc_fastlogp

OPTIONS = {"draws": 100, "tune": 100, "chains": 2, "random_seed": 1, "progressbar": False}
GROUP = np.arange(12) % 3


class InThisProcess(Executor):
    """Executor that runs each task when it is submitted."""

    def submit(self, function, /, *args, **kwargs):
        future: Future = Future()
        future.set_result(function(*args, **kwargs))
        return future


def data_set(k: int, rows: int = 12) -> dict[str, np.ndarray]:
    """Return values around ``k``."""
    return {"seen": np.random.default_rng(k).normal(k, 1, rows).round(1)}


def simple_model(rows: int = 12) -> pm.Model:
    """A mean of values, which are data that can be exchanged."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("y", mu, 1.0, observed=pm.Data("seen", data_set(0, rows)["seen"]))
    return model


@pytest.fixture
def model() -> pm.Model:
    return simple_model()


@pytest.fixture
def grouped_model() -> pm.Model:
    """Groups of rows, whose index no test exchanges."""
    with pm.Model(coords={"group": ["a", "b", "c"], "row": np.arange(12)}) as model:
        a = pm.Normal("a", 0, 10, dims="group")
        index = pm.Data("index", GROUP, dims="row")
        pm.Deterministic("eta", a[index], dims="row")
        seen = pm.Data("seen", data_set(0)["seen"], dims="row")
        pm.Normal("y", a[index], 1.0, observed=seen, dims="row")
    return model


@pytest.fixture
def here() -> Executor:
    return InThisProcess()


@pytest.fixture
def own_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes of ``sample_many`` be two."""
    monkeypatch.setattr("pymc_fastlogp.sampling.usable_cores.usable_cores", lambda: 2)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of the free variables of each model that is compiled in this process."""
    from pymc_fastlogp.sampling import pipeline

    compiled: list[str] = []
    build = pipeline._build

    def counted(request, source):
        compiled.append(", ".join(x.name for x in request.model.free_RVs))
        return build(request, source)

    monkeypatch.setattr(pipeline, "_build", counted)
    return compiled


@pytest.fixture
def empty_memory(monkeypatch: pytest.MonkeyPatch, tmp_path) -> Callable[[], None]:
    """Start with no compiled models in memory or on disk; the function forgets those in memory."""
    from pymc_fastlogp.many import reuse

    monkeypatch.setenv("PYMC_FASTLOGP_CACHE", str(tmp_path / "models"))
    reuse._loaded.clear()
    return reuse._loaded.clear


def means(fits) -> dict:
    """Return the posterior mean of ``mu`` by key."""
    return {fit.key: float(fit.result()["mu"].mean()) for fit in fits}


def fit_all(*args, **kwargs) -> list[pymc_fastlogp.Fit]:
    """Return all fits, with the options of the tests."""
    return list(pymc_fastlogp.sample_many(*args, **{**OPTIONS, **kwargs}))
