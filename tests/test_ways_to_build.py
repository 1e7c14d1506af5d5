"""Models built by other means than distributions in a context keep their density, gradient and draws."""

import warnings

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

from benchmarks.gallery.media import geometric_adstock, logistic_saturation
from pymc_fastlogp import disabled, explain, verify
from tests.conftest import PYTHON

N, GROUPS = 60, 4
RNG = np.random.default_rng(0)
GROUP = RNG.integers(0, GROUPS, N)
X = RNG.normal(size=N).round(1)
Y = RNG.normal(size=N).round(1)
COUNT = RNG.poisson(2.0, N)
SPEND = RNG.gamma(2.0, 1.0, size=(N, 2))


def media_with_dims() -> pm.Model:
    """A model as pymc-marketing builds it: coordinates, data with dims, and stored contributions."""
    coords = {"date": pd.date_range("2024-01-01", periods=N, freq="W"), "channel": ["tv", "web"]}
    with pm.Model(coords=coords) as model:
        spend = pm.Data("channel_data", SPEND, dims=("date", "channel"))
        target = pm.Data("target_data", Y, dims="date")
        x = geometric_adstock(spend, pm.Beta("alpha", 1, 3, dims="channel"), lags=4)
        saturated = logistic_saturation(x, pm.Gamma("lam", 3, 1, dims="channel"))
        beta = pm.HalfNormal("beta", 2, dims="channel")
        contribution = pm.Deterministic("contribution", saturated * beta, dims=("date", "channel"))
        mu = pm.Deterministic("mu", pm.Normal("intercept") + contribution.sum(-1), dims="date")
        pm.Normal("y", mu, pm.HalfNormal("sigma"), observed=target, dims="date")
    return model


def slopes() -> pm.Model:
    with pm.Model() as model:
        a, b = pm.Normal("a", shape=GROUPS), pm.Normal("b")
        pm.Normal("y", a[GROUP] + b * X, pm.HalfNormal("sigma"), shape=N)
    return model


def observed_later() -> pm.Model:
    return pm.observe(slopes(), {"y": Y})


def intervention() -> pm.Model:
    return pm.do(observed_later(), {"b": 0.5})


def custom_by_logp() -> pm.Model:
    def logp(value, mu, scale):
        return -pt.log(2 * scale) - pt.abs(value - mu) / scale

    with pm.Model() as model:
        mu = pm.Normal("a", shape=GROUPS)[GROUP]
        pm.CustomDist("y", mu, pm.HalfNormal("scale"), logp=logp, observed=Y)
    return model


def custom_by_dist() -> pm.Model:
    def dist(mu, sigma, size):
        return pt.exp(pm.Normal.dist(mu, sigma, size=size))

    with pm.Model() as model:
        mu = pm.Normal("a", shape=GROUPS)[GROUP]
        pm.CustomDist("y", mu, pm.HalfNormal("sigma"), dist=dist, observed=np.exp(Y))
    return model


def imputed() -> pm.Model:
    missing = np.arange(N) % 7 == 0
    with warnings.catch_warnings(), pm.Model() as model:
        warnings.simplefilter("ignore", pm.exceptions.ImputationWarning)
        dose = pm.Normal("dose", pm.Normal("m"), observed=np.ma.masked_array(X, mask=missing))
        eta = pm.Normal("a", shape=GROUPS)[GROUP] + pm.Normal("b") * dose
        pm.Poisson("y", pt.exp(eta), observed=COUNT)
    return model


WAYS = [media_with_dims, observed_later, intervention, custom_by_logp, custom_by_dist, imputed]


@pytest.mark.parametrize("build", WAYS)
def test_any_way_to_build_agrees(build):
    model = build()
    outcome = verify(model)
    assert outcome, outcome
    assert "y" in {row.variable for row in explain(model).rows if row.kind == "likelihood"}


def drawn(model: pm.Model, **options: Mode) -> list[np.ndarray]:
    """Return draws of everything that a user looks at."""
    variables = [*model.free_RVs, *model.deterministics, model["y"]]
    return pm.draw(variables, 3, random_seed=1, **options)


@pytest.mark.parametrize("build", [way for way in WAYS if way is not custom_by_logp])
def test_draws(build):
    model = build()
    with disabled():
        off = drawn(model, mode=PYTHON)
    for found, expected in zip(drawn(model), off, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_observing_and_intervening_leave_the_density_that_is_written_out():
    """`pm.observe` and `pm.do` against the same model written by hand, at a point."""
    with pm.Model() as by_hand:
        a = pm.Normal("a", shape=GROUPS)
        pm.Normal("y", a[GROUP] + 0.5 * X, pm.HalfNormal("sigma"), observed=Y)
    point = {"a": np.linspace(-1, 1, GROUPS), "sigma_log__": np.array(0.3)}
    with disabled():
        expected = by_hand.compile_logp(mode=PYTHON)(point)
    assert intervention().compile_logp()(point) == pytest.approx(expected, rel=1e-12)


@pytest.fixture(scope="module")
def bambi_model():
    bmb = pytest.importorskip("bambi")
    data = pd.DataFrame({"y": Y, "x": X, "count": COUNT, "group": [f"g{k}" for k in GROUP]})

    def build(formula: str, **kwargs) -> pm.Model:
        model = bmb.Model(formula, data, **kwargs)
        model.build()
        return model.backend.model

    return build


@pytest.mark.parametrize(
    ("formula", "family"),
    [
        ("y ~ x + (1 + x|group)", "gaussian"),
        ("count ~ bs(x, df=5) + (1|group)", "poisson"),
        ("count ~ x", "negativebinomial"),
    ],
)
def test_bambi_models_agree(bambi_model, formula, family):
    model = bambi_model(formula, family=family)
    outcome = verify(model)
    assert outcome, outcome
    [likelihood] = model.observed_RVs
    rows = [row for row in explain(model).rows if row.kind == "likelihood"]
    assert {row.variable for row in rows} == {likelihood.name}
    assert any(row.fired for row in rows)
