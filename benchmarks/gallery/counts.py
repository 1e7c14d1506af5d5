"""Counts by group: hurdles, many zeros, several categories."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.gallery.registry import in_gallery


def _visits(rng, rows, groups):
    """Return groups, a covariate of one decimal, and counts of which many are zero."""
    group, x = rng.integers(0, groups, rows), rng.normal(size=rows).round(1)
    rate = np.exp(0.5 + 0.3 * x + 0.5 * rng.normal(size=groups)[group])
    return group, x, rng.poisson(rate) * (rng.random(rows) < 0.6)


@in_gallery
def hurdle_poisson_by_group(rng):
    """Bambi, notebook "Hurdle models": whether and how often, both by group."""
    group, x, y = _visits(rng, 2000, 30)
    psi = pm.math.invlogit(pm.Normal("whether", pm.Normal("w0"), 1.0, shape=30))
    eta = pm.Normal("often", pm.Normal("o0"), pm.HalfNormal("s"), shape=30)[group]
    pm.HurdlePoisson("y", psi=psi[group], mu=pt.exp(eta + pm.Normal("b") * x), observed=y)


@in_gallery
def hurdle_negative_binomial_by_group(rng):
    """Bambi, notebook "Hurdle models", with overdispersion."""
    group, x, y = _visits(rng, 2000, 30)
    psi = pm.math.invlogit(pm.Normal("whether", pm.Normal("w0"), 1.0, shape=30))
    eta = pm.Normal("often", pm.Normal("o0"), pm.HalfNormal("s"), shape=30)[group]
    mu, alpha = pt.exp(eta + pm.Normal("b") * x), pm.Exponential("alpha", 1.0)
    pm.HurdleNegativeBinomial("y", psi=psi[group], mu=mu, alpha=alpha, observed=y)


@in_gallery
def zero_inflated_poisson_by_group(rng):
    """Bambi, notebook "Zero inflated models": both parts with a slope."""
    group, x, y = _visits(rng, 2000, 30)
    psi = pm.math.invlogit(pm.Normal("p0") + pm.Normal("p1") * x)
    eta = pm.Normal("a", pm.Normal("a0"), pm.HalfNormal("s"), shape=30)[group]
    pm.ZeroInflatedPoisson("y", psi=psi, mu=pt.exp(eta + pm.Normal("b") * x), observed=y)


@in_gallery
def multinomial_by_group(rng):
    """PyMC discourse: shares of six products, by shop and month."""
    rows, shops, products = 800, 40, 6
    shop = rng.integers(0, shops, rows)
    share = pm.Normal("share", 0, pm.HalfNormal("s"), shape=(shops, products - 1))
    trend = pm.Normal("trend", shape=products - 1) * rng.normal(size=(rows, 1)).round(1)
    eta = pt.concatenate([share[shop] + trend, pt.zeros((rows, 1))], axis=1)
    sold = rng.multinomial(100, np.full(products, 1 / products), size=rows)
    pm.Multinomial("sold", n=100, p=pm.math.softmax(eta, axis=-1), observed=sold)


@in_gallery
def hierarchical_dirichlet_multinomial(rng):
    """PyMC, notebook "Dirichlet mixtures of multinomials", with shares and concentration by site."""
    sites, visits, species = 25, 20, 8
    site = np.repeat(np.arange(sites), visits)
    overall = pm.Dirichlet("overall", np.full(species, 2.0))
    concentration = pm.LogNormal("concentration", 3.0, 1.0)
    share = pm.Dirichlet("share", overall * concentration, shape=(sites, species))
    spread = pm.LogNormal("spread", 2.0, 1.0, shape=sites)
    table = rng.multinomial(60, rng.dirichlet(np.full(species, 2.0)), size=sites * visits)
    a = (share * spread[:, None])[site]
    pm.DirichletMultinomial("seen", n=60, a=a, observed=table)


@in_gallery
def beta_binomial_by_group(rng):
    """McElreath, *Statistical Rethinking*, ch. 12: overdispersed admissions, by department and year."""
    rows, departments = 600, 30
    department, x = rng.integers(0, departments, rows), rng.normal(size=rows).round(1)
    a = pm.Normal("a", pm.Normal("a0", 0, 1.5), pm.HalfNormal("s"), shape=departments)
    p = pm.math.invlogit(a[department] + pm.Normal("b") * x)
    theta = pm.Exponential("phi", 1.0) + 2
    applied = rng.integers(20, 200, rows)
    admitted = rng.binomial(applied, rng.beta(2, 3, rows))
    pm.BetaBinomial("admitted", alpha=p * theta, beta=(1 - p) * theta, n=applied, observed=admitted)
