"""Tables of parameters that are long for the rows that read them: gathers and scatters are most of the time."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.gallery.registry import in_gallery

ROWS, LEVELS, GROUPS = 6_000, 1_000, 25


@in_gallery
def ratings_by_one_factor(rng):
    """Salakhutdinov and Mnih 2008, "Probabilistic Matrix Factorization": one latent factor, 1 000 users and films."""
    user, film = rng.integers(0, LEVELS, (2, ROWS))
    mu = pm.Normal("u", shape=LEVELS)[user] * pm.Normal("w", shape=LEVELS)[film]
    pm.Normal("y", mu, pm.HalfNormal("sigma"), observed=rng.normal(size=ROWS))


@in_gallery
def long_and_short_effects(rng):
    """Bates et al. 2015, "Fitting Linear Mixed-Effects Models Using lme4": crossed effects, 1 000 and 25 levels."""
    long, short = rng.integers(0, LEVELS, ROWS), rng.integers(0, GROUPS, ROWS)
    mu = pm.Normal("u", shape=LEVELS)[long] + pm.Normal("a", shape=GROUPS)[short]
    pm.Normal("y", mu, pm.HalfNormal("sigma"), observed=rng.normal(size=ROWS))


@in_gallery
def one_effect_a_row_in_another_order(rng):
    """Harrison 2014, "Using observation-level random effects to model overdispersion": rows in another order than effects."""
    mu = pm.Normal("u", shape=ROWS)[rng.permutation(ROWS)] * pm.Normal("b")
    pm.Normal("y", mu, pm.HalfNormal("sigma"), observed=rng.normal(size=ROWS))


def _covariate(rng):
    """Return group, covariate and outcome, and which of the covariate is missing: 15 %."""
    group, x = rng.integers(0, GROUPS, ROWS), rng.normal(size=ROWS)
    y = rng.normal(0, 0.5, GROUPS)[group] + 0.7 * x + rng.normal(size=ROWS)
    return group, x, y, rng.random(ROWS) < 0.15


def _regression(group, x, y):
    a = pm.Normal("a", pm.Normal("mu"), pm.HalfNormal("tau"), shape=GROUPS)
    pm.Normal("y", a[group] + pm.Normal("b") * x, pm.HalfNormal("sigma"), observed=y)


@in_gallery
def imputed_covariate(rng):
    """PyMC notebook "Bayesian Missing Data Imputation": a covariate by group, 15 % missing, imputed by PyMC."""
    group, x, y, is_missing = _covariate(rng)
    seen = np.where(is_missing, np.nan, x)
    _regression(group, pm.Normal("x", pm.Normal("m"), pm.HalfNormal("s"), observed=seen), y)


@in_gallery
def imputed_covariate_by_gather(rng):
    """PyMC notebook "Bayesian Missing Data Imputation": the same, values joined and put into order by an index."""
    group, x, y, is_missing = _covariate(rng)
    n_missing = int(is_missing.sum())
    missing = pm.Normal("x", pm.Normal("m"), pm.HalfNormal("s"), shape=n_missing)
    order = np.argsort(np.argsort(is_missing, kind="stable"))
    _regression(group, pt.concatenate([x[~is_missing], missing])[order], y)
