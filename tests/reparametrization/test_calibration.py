"""Simulation-based calibration: for any sites, the ranks of the true parameters are uniform among posterior draws.

S. Talts, M. Betancourt, D. Simpson, A. Vehtari and A. Gelman (2018), Validating Bayesian inference algorithms with simulation-based
calibration. Each model is compiled once; data and sites, good and bad ones, are shared.
"""

import numpy as np
import nutpie
import pymc as pm
import pytest
from scipy.stats import chisquare

import pymc_fastlogp
from pymc_fastlogp.reparametrization.model_with_sites import find_effects, with_sites
from pymc_fastlogp.reparametrization.sites import Site, site_arrays

GROUPS, ROWS = 6, 48
GROUP = np.arange(ROWS) % GROUPS
X = np.random.default_rng(1).normal(size=ROWS)
REPLICATES, DRAWS, THIN, N_BINS = 195, 320, 5, 13
# Of a test that is done a dozen times, with fixed seeds.
SUSPICIOUS = 1e-4


def centered() -> pm.Model:
    with pm.Model() as model:
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        a = pm.Normal("a", mu, tau, shape=GROUPS)
        pm.Normal("y", a[GROUP], 0.7, observed=pm.Data("seen", np.zeros(ROWS)))
    return model


def counts() -> pm.Model:
    with pm.Model() as model:
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        raw = pm.Normal("raw", shape=GROUPS)
        rate = pm.math.exp((mu + tau * raw)[GROUP])
        pm.Poisson("y", rate, observed=pm.Data("seen", np.zeros(ROWS, int)))
    return model


def correlated() -> pm.Model:
    with pm.Model() as model:
        sd = pm.Exponential.dist(1.0, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=sd)
        z = pm.Normal("z", shape=(GROUPS, 2))
        effects = z @ chol.T
        eta = effects[GROUP, 0] + effects[GROUP, 1] * X
        pm.Normal("y", eta, 0.7, observed=pm.Data("seen", np.zeros(ROWS)))
    return model


def zero_sum() -> pm.Model:
    with pm.Model() as model:
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        a = pm.ZeroSumNormal("a", tau, shape=GROUPS)
        pm.Normal("y", mu + a[GROUP], 0.7, observed=pm.Data("seen", np.zeros(ROWS)))
    return model


def any_site(flat: Site, rng: np.random.Generator) -> Site:
    """Return a site of random precision, up to a hundredfold that of the prior, about a random center."""
    n_effects, *shape = flat.gradient.shape
    factors = rng.normal(size=(*shape, n_effects, n_effects)) * 10 ** rng.uniform(-1.5, 1)
    information = factors @ np.swapaxes(factors, -1, -2)
    center = rng.normal(size=(*shape, n_effects, 1))
    gradient = (information @ center)[..., 0]
    slopes = {name: rng.normal(size=x.shape) for name, x in flat.slopes.items()}
    return Site(np.moveaxis(information, (-2, -1), (0, 1)), np.moveaxis(gradient, -1, 0), slopes)


def ranks(make, names) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Return ranks of the truth by variable, and those of a truth that is half a standard deviation off."""
    model = make()
    with model:
        prior = pm.sample_prior_predictive(REPLICATES, random_seed=1)
    found = find_effects(model)
    assert found.blocks
    sited = with_sites(model, found.blocks, is_shared=True).model
    compiled = pymc_fastlogp.compile_pymc_model(sited, freeze_model=False)
    rng = np.random.default_rng(2)
    right: dict[str, list[int]] = {name: [] for name in names}
    wrong: dict[str, list[int]] = {name: [] for name in names}
    for i in range(REPLICATES):
        numbers = {"seen": prior.prior_predictive["y"].values[0, i]}
        for block, flat in found.blocks.items():
            numbers |= site_arrays(block, any_site(flat, rng))
        options = {"draws": DRAWS, "tune": 300, "chains": 1, "seed": i, "progress_bar": False}
        posterior = nutpie.sample(compiled.with_data(**numbers), **options).posterior
        for name in names:
            draws = posterior[name].values[0, ::THIN].reshape(DRAWS // THIN, -1)[:, 0]
            truth = prior.prior[name].values[0, i].reshape(-1)[0]
            right[name].append(int((draws < truth).sum()))
            wrong[name].append(int((draws < truth + draws.std() / 2).sum()))
    return right, wrong


def p_value(found: list[int]) -> float:
    """Return how likely ranks are that are as uneven."""
    counted, _ = np.histogram(found, bins=N_BINS, range=(0, DRAWS // THIN + 1))
    return float(chisquare(counted).pvalue)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "names"),
    [
        (centered, ["mu", "tau", "a"]),
        (counts, ["mu", "tau", "raw"]),
        (correlated, ["chol", "z"]),
        (zero_sum, ["mu", "tau", "a"]),
    ],
    ids=["centered", "counts", "correlated", "zero sum"],
)
def test_ranks_are_uniform(make, names):
    right, wrong = ranks(make, names)
    for name in names:
        assert p_value(right[name]) > SUSPICIOUS, right[name]
        assert p_value(wrong[name]) < SUSPICIOUS
