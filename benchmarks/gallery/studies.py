"""Hierarchical models and case studies of the example gallery."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.gallery.registry import in_gallery


@in_gallery
def hierarchical_partial_pooling(rng):
    """PyMC notebook "Hierarchical Partial Pooling"."""
    phi, kappa_log = pm.Uniform("phi", 0.0, 1.0), pm.Exponential("kappa_log", lam=1.5)
    kappa = pt.exp(kappa_log)
    theta = pm.Beta("theta", alpha=phi * kappa, beta=(1.0 - phi) * kappa, shape=18)
    pm.Binomial("y", n=45, p=theta, observed=rng.binomial(45, 0.26, size=18))


@in_gallery
def hierarchical_binomial_rat_tumor(rng):
    """PyMC notebook "Hierarchical Binomial Model: Rat Tumor Example"."""
    ab = pm.HalfNormal("ab", sigma=10, shape=2)
    pm.Potential("p(a, b)", -2.5 * pt.log(pt.sum(ab)))
    theta = pm.Beta("theta", alpha=ab[0], beta=ab[1], shape=71)
    pm.Binomial("y", p=theta, n=np.full(71, 20), observed=rng.binomial(20, 0.15, size=71))


@in_gallery
def rugby(rng):
    """PyMC notebook "A Hierarchical model for Rugby prediction"."""
    home, away = rng.integers(0, 6, size=(2, 60))
    atts_star = pm.Normal("atts_star", 0, pm.HalfNormal("sd_att", 2), shape=6)
    defs_star = pm.Normal("def_star", 0, pm.HalfNormal("sd_def", 2), shape=6)
    atts, defs = atts_star - pt.mean(atts_star), defs_star - pt.mean(defs_star)
    start = pm.Normal("intercept", mu=3, sigma=1)
    home_theta = pt.exp(start + pm.Normal("home") + atts[home] + defs[away])
    pm.Poisson("home_points", mu=home_theta, observed=rng.poisson(23, 60))
    pm.Poisson(
        "away_points", mu=pt.exp(start + atts[away] + defs[home]), observed=rng.poisson(20, 60)
    )


@in_gallery
def multilevel_covariation(rng):
    """PyMC notebook "A Primer on Bayesian Methods for Multilevel Modeling", covariation of intercept and slope."""
    county, floor = rng.integers(0, 85, 919), rng.integers(0, 2, 919)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
    g = pm.Normal("g", 0.0, 10.0, shape=2)
    mu_ab = pt.stack([g[0] + g[1] * rng.normal(size=85), pt.zeros(85) + pm.Normal("beta")], axis=1)
    ab = mu_ab + pt.dot(chol, pm.Normal("z", 0.0, 1.0, shape=(2, 85))).T
    mu = ab[county, 0] + ab[county, 1] * floor
    pm.Normal("y", mu, sigma=pm.Exponential("sigma", 1.0), observed=rng.normal(size=919))


@in_gallery
def best(rng):
    """PyMC notebook "Bayesian Estimation Supersedes the T-Test"."""
    y = np.round(rng.normal(100, 2, size=89))
    means = [pm.Normal(f"m{i}", mu=y.mean(), sigma=y.std() * 2) for i in range(2)]
    sds = [pm.Uniform(f"s{i}", lower=0.1, upper=10) for i in range(2)]
    nu = pm.Exponential("nu_minus_one", 1 / 29.0) + 1
    for i, values in enumerate((y[:47], y[47:])):
        pm.StudentT(f"y{i}", nu=nu, mu=means[i], lam=sds[i] ** -2, observed=values)


@in_gallery
def item_response_nba(rng):
    """PyMC notebook "NBA Foul Analysis with Item Response Theory"."""
    theta = pm.Normal("theta_z", shape=400)[rng.integers(0, 400, 40000)]
    b = pm.Normal("b_z", shape=400)[rng.integers(0, 400, 40000)]
    eta = (pm.HalfCauchy("s_t", 2.5) * theta) - (pm.HalfCauchy("s_b", 2.5) * b + pm.Normal("mu_b"))
    pm.Bernoulli("fouls", p=pm.math.sigmoid(eta), observed=rng.integers(0, 2, 40000))


@in_gallery
def marketing_mix_adstock(rng):
    """PyMC Labs, "Bayesian Media Mix Modeling": adstock, logistic saturation, two channels."""
    spend = rng.gamma(2, 1, size=(179, 2))
    decay, lam = pm.Beta("alpha", 1, 3, shape=2), pm.Gamma("lam", 3, 1, shape=2)
    weights = decay ** pt.arange(8)[:, None]
    lagged = [pt.concatenate([np.zeros((i, 2)), spend[: 179 - i]]) for i in range(8)]
    adstock = sum(lagged[i] * (weights / weights.sum(0))[i] for i in range(8))
    saturated = (1 - pt.exp(-lam * adstock)) / (1 + pt.exp(-lam * adstock))
    mu = pm.Normal("intercept", 0, 2) + (saturated * pm.HalfNormal("beta", 2, shape=2)).sum(axis=-1)
    pm.Normal("y", mu=mu, sigma=pm.HalfNormal("sigma", 2), observed=rng.normal(size=179))


@in_gallery
def bayesian_neural_network(rng):
    """PyMC notebook "Variational Inference: Bayesian Neural Networks"."""
    w1, w2 = pm.Normal("w_in_1", shape=(2, 5)), pm.Normal("w_1_2", shape=(5, 5))
    act = pm.math.tanh(pm.math.dot(pm.math.tanh(pm.math.dot(rng.normal(size=(500, 2)), w1)), w2))
    out = pm.math.sigmoid(pm.math.dot(act, pm.Normal("w_2_out", shape=5)))
    pm.Bernoulli("out", out, observed=rng.integers(0, 2, 500))


@in_gallery
def excess_deaths(rng):
    """PyMC notebook "Counterfactual inference: calculating excess deaths due to COVID-19"."""
    month = pm.ZeroSumNormal("beta_month", sigma=5, shape=12)
    mu = pm.Normal("intercept", 40_000, 10_000) + pm.Normal("b_t", 0, 50) * np.arange(171)
    mu += month[np.arange(171) % 12] + pm.Normal("b_temp", 0, 200) * rng.normal(size=171)
    sigma = pm.HalfNormal("sigma", 2_000)
    pm.TruncatedNormal("obs", mu=mu, sigma=sigma, lower=0, observed=rng.normal(40_000, 2_000, 171))
