"""nutpie's library, called without nutpie's modules: the same draws, groups, dimensions and attributes as from ``nutpie.sample``."""

import subprocess
import sys
import time

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_fastlogp
from pymc_fastlogp._upstream import nutpie_library
from pymc_fastlogp.compilation.loading import sampled_model
from pymc_fastlogp.sampling.compile_model import compiled_record
from pymc_fastlogp.sampling.draws import datatree
from pymc_fastlogp.sampling.request import request_of
from tests.callbacks import models

OPTIONS = {"draws": 20, "tune": 50, "chains": 2, "cores": 1, "progressbar": False, "quiet": True}
# When, and for how long, is another each time.
UNLIKE = {"created_at", "sampling_time"}


def diverging() -> pm.Model:
    """Neal's funnel, with a coordinate of dates and one of a scalar's own."""
    with pm.Model(coords={"day": np.arange("2026-01-01", "2026-01-04", dtype="M8[D]")}) as model:
        pm.Data("weight", np.arange(3), dims="day")
        log_scale = pm.Normal("log_scale", 0, 3)
        pm.Normal("x", 0, pm.math.exp(2 * log_scale), dims="day")
        pm.Deterministic("empty", pm.math.stack([log_scale])[:0])
    return model


def called_as_statistics() -> pm.Model:
    """Variables with names of nutpie's statistics: of one that it leaves out, and of one without dimensions."""
    with pm.Model(coords={"group": ["a", "b", "c"]}) as model:
        gradient = pm.Normal("gradient", 0, 1)
        pm.Normal("depth", gradient, 1, dims="group")
    return model


@pytest.fixture
def by_nutpie(monkeypatch):
    """Sample as with a release of nutpie that is not known: through its modules in Python."""

    def sample(**options):
        with monkeypatch.context() as patch:
            patch.setattr(nutpie_library, "RELEASES", frozenset())
            return pymc_fastlogp.sample(**options)

    return sample


@pytest.mark.parametrize("reparametrize", [False, True], ids=["written", "reparametrized"])
@pytest.mark.parametrize(
    "make",
    [models.hierarchy, models.constrained, models.one_number, diverging, called_as_statistics],
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"discard_tuned_samples": False, "idata_kwargs": {"include_transformed": True}},
        {"target_accept": 0.9, "nuts": {"max_treedepth": 4}, "tune": 0},
        {"tune": None},
    ],
    ids=["plain", "everything", "nuts", "default"],
)
def test_draws_and_statistics_equal_nutpies(by_nutpie, make, options, reparametrize):
    options = {**OPTIONS, **options, "random_seed": 11, "reparametrize": reparametrize}
    found = pymc_fastlogp.sample(model=make(), **options)
    expected = by_nutpie(model=make(), **options)
    assert found.groups == expected.groups
    for group in expected.groups:
        there, here = expected[group].to_dataset(), found[group].to_dataset()
        xr.testing.assert_identical(here.drop_attrs(), there.drop_attrs())
        assert {x: here[x].dtype for x in here} == {x: there[x].dtype for x in there}
        assert here.attrs.keys() == there.attrs.keys()
        for name in here.attrs.keys() - UNLIKE:
            assert here.attrs[name] == there.attrs[name], name


def test_the_funnel_diverges():
    idata = pymc_fastlogp.sample(model=diverging(), **{**OPTIONS, "draws": 300}, random_seed=1)
    assert idata.sample_stats["diverging"].any()


@pytest.mark.parametrize(
    "options", [{"nuts": {"adaptation": "low_rank"}}, {"nuts": {"store_divergences": True}}]
)
def test_unsupported_options_go_to_nutpie(monkeypatch, options):
    calls = []
    module = sys.modules["pymc_fastlogp.sampling.by_nutpie"]
    monkeypatch.setattr(module, "draw", lambda *_, **__: calls.append(1))
    idata = pymc_fastlogp.sample(model=models.one_number(), **OPTIONS, **options)
    assert idata.posterior["x"].shape == (2, 20)
    assert calls == []


@pytest.fixture
def draw():
    """Sample a model by the library, as told by the arguments that a test does not leave out."""

    def draw(model, *, n_draws=1_000_000, progress=None, meanwhile=lambda: None):
        request = request_of(model)
        sampled = sampled_model(compiled_record(request))
        trace = nutpie_library.draw(
            nutpie_library.library(),
            sampled,
            seed=1,
            settings={"num_draws": n_draws, "num_tune": 100, "num_chains": 2},
            store_unconstrained=False,
            cores=1,
            progress=progress,
            meanwhile=meanwhile,
        )
        return trace, sampled

    return draw


def test_progress_is_reported(draw):
    reported = []
    trace, _ = draw(models.hierarchy(), n_draws=20_000, progress=reported.append)
    assert [batch.num_rows for batch in trace.draws] == [20_100, 20_100]
    assert reported
    assert len(reported[0]) == 2


def test_interrupted_sampling_returns_the_draws_so_far(draw):
    def interrupt():
        time.sleep(0.5)
        raise KeyboardInterrupt

    trace, sampled = draw(models.hierarchy(), meanwhile=interrupt)
    idata = datatree(trace, sampled, [], save_warmup=True, store_unconstrained=False)
    assert 2 < idata.posterior.sizes["draw"] < 1_000_000


def test_error_ends_the_sampler(draw):
    def fail():
        raise OSError("no such module")

    with pytest.raises(OSError, match="no such module"):
        draw(models.one_number(), meanwhile=fail)


SAMPLED = """
import pymc as pm
import pymc_fastlogp

with pm.Model() as model:
    x = pm.Normal("x", shape=3)
    pm.Normal("y", x, 1, observed=[1.0, 2.0, 3.0])
    idata = pymc_fastlogp.sample(20, tune=50, chains=2, cores=1, progressbar=False, quiet=True, random_seed=1)
"""
LOADED = """
import sys
loaded = {"numba", "matplotlib", "arviz_plots", "arviz_stats", "nutpie"} & sys.modules.keys()
print(*sorted(loaded), idata.posterior["x"].values.sum(), sep="|")
library = sys.modules["nutpie._lib"]
import nutpie
assert nutpie._lib is library
assert nutpie.sample(nutpie.compile_pymc_model(model), draws=20, tune=50, chains=1, progress_bar=False).posterior["x"].shape == (1, 20, 3)
"""


def test_a_model_from_disk_imports_neither_numba_nor_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setenv("PYMC_FASTLOGP_CACHE", str(tmp_path))
    namespace = {}
    exec(SAMPLED, namespace)
    *loaded, total = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SAMPLED + LOADED],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.split("|")
    assert loaded == []
    assert float(total) == namespace["idata"].posterior["x"].values.sum()
