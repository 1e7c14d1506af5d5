"""A model whose rows do not reduce, and clusters of Dask in this process and in others."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_fastlogp
from pymc_fastlogp.tables import partitions

OPTIONS: dict[str, Any] = {
    "draws": 30,
    "tune": 30,
    "chains": 2,
    "cores": 2,
    "random_seed": 1,
    "progressbar": False,
    "quiet": True,
}


def rows(n: int = 100_000) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "shop": rng.choice(["east", "north", "south", "west"], n),
            "x": rng.normal(size=n),
            "y": rng.integers(0, 2, n),
            "z": rng.integers(0, 3, n),
        }
    )


def logit(table: Any, **likelihood: Any) -> pm.Model:
    """Return a logistic regression with a continuous covariate and a parameter that the likelihood does not read."""
    with pm.Model(coords={"shop": ["east", "north", "south", "west"]}) as model:
        tau = pm.HalfNormal("tau")
        a = pm.Normal("a", 0, tau, dims="shop")
        b = pm.Normal("b")
        eta = a[table["shop"]] + b * table["x"]
        pm.Bernoulli("y", logit_p=eta, observed=table["y"])
    return model


@pytest.fixture(scope="session", autouse=True)
def distributed() -> Any:
    pytest.importorskip("narwhals")
    return pytest.importorskip("distributed")


@pytest.fixture
def few_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small table have three partitions."""
    monkeypatch.setattr(partitions, "FEWEST_PARTITIONS", 3)


@pytest.fixture(scope="session")
def here(distributed: Any) -> Iterator[Any]:
    """Yield the client of two workers that are threads of this process."""
    options = {"processes": False, "dashboard_address": ":0", "threads_per_worker": 1}
    with (
        distributed.LocalCluster(n_workers=2, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def table() -> Any:
    return pymc_fastlogp.table(rows(3000))
