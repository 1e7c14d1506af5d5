"""Values seen in part, by group: censored, truncated, and times until an event."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.gallery.registry import in_gallery


def _effects(rng, rows, groups):
    """Return the linear predictor of a covariate and groups, and the same with true values."""
    group, x = rng.integers(0, groups, rows), rng.normal(size=rows).round(1)
    a = pm.Normal("a", pm.Normal("a0"), pm.HalfNormal("s_a"), shape=groups)
    return group, a[group] + pm.Normal("b") * x, 0.5 * x + rng.normal(size=groups)[group]


@in_gallery
def censored_by_group(rng):
    """Tobin 1958, PyMC notebook "Truncated and censored regression": detection limits, 25 laboratories."""
    _, mu, true = _effects(rng, 2000, 25)
    y = (true + rng.normal(size=2000)).clip(-0.5, 2.0)
    latent = pm.Normal.dist(mu, pm.HalfNormal("sigma"))
    pm.Censored("y", latent, lower=-0.5, upper=2.0, observed=y)


@in_gallery
def truncated_by_group(rng):
    """PyMC notebook "Truncated and censored regression": what lies outside was never recorded."""
    _, mu, true = _effects(rng, 2000, 25)
    y = true + rng.normal(size=2000)
    inside = np.flatnonzero((y > -1) & (y < 2))
    latent = pm.Normal.dist(mu[inside], pm.HalfNormal("sigma"))
    pm.Truncated("y", latent, lower=-1.0, upper=2.0, observed=y[inside])


@in_gallery
def censored_exponential_by_group(rng):
    """Bambi, family `exponential` with `censored(time, status)`: 40 hospitals."""
    _, eta, true = _effects(rng, 1500, 40)
    time = rng.exponential(np.exp(true))
    end = rng.uniform(0.5, 3.0, 1500)
    latent = pm.Exponential.dist(scale=pt.exp(eta))
    pm.Censored("time", latent, lower=None, upper=end, observed=np.minimum(time, end))


@in_gallery
def weibull_by_group(rng):
    """PyMC notebook "Reparameterizing the Weibull Accelerated Failure Time Model", by 30 machines, censored."""
    group, eta, true = _effects(rng, 2000, 30)
    shape = pm.LogNormal("shape", 0.0, 0.5, shape=30)[group]
    time = np.exp(true) * rng.weibull(1.5, 2000)
    end = np.quantile(time, 0.8)
    latent = pm.Weibull.dist(alpha=shape, beta=pt.exp(eta))
    pm.Censored("time", latent, lower=None, upper=end, observed=np.minimum(time, end))


@in_gallery
def weibull_with_potential(rng):
    """Reliability in PyMC discourse: failures by `Weibull`, survivors by a potential."""
    _, eta, true = _effects(rng, 1500, 20)
    shape, scale = pm.Gamma("shape", 3, 2), pt.exp(eta)
    time = np.exp(true) * rng.weibull(1.5, 1500)
    failed = time < np.quantile(time, 0.7)
    kept = np.flatnonzero(failed)
    pm.Weibull("failed", alpha=shape, beta=scale[kept], observed=time[kept])
    pm.Potential("survived", -(((time / scale) ** shape)[np.flatnonzero(~failed)]).sum())


@in_gallery
def piecewise_exponential(rng):
    """PyMC notebook "Bayesian Survival Analysis" with covariates and frailty: 600 patients, 12 intervals."""
    patients, intervals, clinics = 600, 12, 20
    X, clinic = rng.normal(size=(patients, 4)).round(1), rng.integers(0, clinics, patients)
    time = rng.exponential(8.0, patients)
    edges = np.arange(intervals + 1.0)
    exposure = (time[:, None] - edges[:-1]).clip(0, 1)
    died = ((time[:, None] > edges[:-1]) & (time[:, None] <= edges[1:])).astype(int)
    baseline = pm.Gamma("baseline", 0.5, 2.0, shape=intervals)
    frailty = pm.Gamma("frailty", 5.0, 5.0, shape=clinics)[clinic]
    risk = frailty * pt.exp(X @ pm.Normal("beta", shape=4))
    pm.Poisson("died", exposure * pt.outer(risk, baseline) + 1e-10, observed=died)


@in_gallery
def log_normal_hurdle_by_group(rng):
    """Bambi, family `hurdle_lognormal`: whether and how much, by 40 shops."""
    group, eta, true = _effects(rng, 2000, 40)
    y = np.exp(true + rng.normal(size=2000)) * (rng.random(2000) < 0.7)
    psi = pm.Beta("psi", 2, 2, shape=40)[group]
    pm.HurdleLogNormal("y", psi=psi, mu=eta, sigma=pm.HalfNormal("sigma"), observed=y)
