"""Compiled models that several tests share."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import nutpie
import pytest

import pymc_fastlogp
from pymc_fastlogp.compilation import build
from pymc_fastlogp.model_cache import store
from tests.callbacks import models


class Pair(NamedTuple):
    """A model, compiled by us, by nutpie and Numba, and by nutpie with ``compile_kwargs()``."""

    direct: Any
    nutpie: Any
    by_pipeline: Any


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep models in a folder of the test run."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("models") / "cache"
        patch.setenv(store.ENVIRONMENT_VARIABLE, str(folder))
        yield


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty place for models."""
    place = tmp_path / "cache"
    monkeypatch.setenv(store.ENVIRONMENT_VARIABLE, str(place))
    return place


@pytest.fixture
def builds(monkeypatch):
    """Return the number of models compiled since the test began."""
    made = []
    plain = build.Build.__init__

    def counted(self, *args):
        made.append(self)
        plain(self, *args)

    monkeypatch.setattr(build.Build, "__init__", counted)
    return made


@pytest.fixture(scope="session", params=models.DIRECT, ids=lambda make: make.__name__)
def pair(request: pytest.FixtureRequest) -> Pair:
    """One of the models that are compiled without Numba.

    Each way gets a model of its own: nutpie rewrites the variables in the transform of a Cholesky prior in place, so that a second
    compilation adds in another order, with and without the plugin.
    """
    direct = pymc_fastlogp.compile_pymc_model(request.param())
    expected = nutpie.compile_pymc_model(request.param(), freeze_model=True)
    by_pipeline = nutpie.compile_pymc_model(request.param(), **pymc_fastlogp.compile_kwargs())
    return Pair(direct, expected, by_pipeline)
