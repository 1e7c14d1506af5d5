"""Effects of groups as users write them: crossed, interacting, summing to zero, drifting, sparse."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.gallery.registry import in_gallery


@in_gallery
def crossed_effects_with_interaction(rng):
    """Bambi: `rt ~ 1 + frequency + (1 + frequency|subject) + (1|item) + (1|subject:session)`."""
    rows, subjects, items, sessions = 3000, 60, 80, 3
    subject, item, session = (rng.integers(0, n, rows) for n in (subjects, items, sessions))
    frequency = rng.normal(size=items).round(2)[item]

    def varying(name, size):
        return pm.Normal(f"{name}_offset", shape=size) * pm.HalfNormal(f"{name}_sigma", 1.0)

    mu = pm.Normal("Intercept", 6.0, 1.0) + pm.Normal("frequency") * frequency
    mu += varying("subject", subjects)[subject] + varying("item", items)[item]
    mu += varying("frequency_by_subject", subjects)[subject] * frequency
    mu += varying("subject_by_session", (subjects, sessions))[subject, session]
    y = 6 + 0.2 * frequency + rng.normal(size=subjects)[subject] + rng.normal(size=rows)
    pm.Normal("rt", mu, pm.HalfStudentT("sigma", nu=4, sigma=1), observed=y)


@in_gallery
def interactions_of_factors(rng):
    """Gelman, Hill and Vehtari, *Regression and Other Stories*, ch. 17: poststratification with two-way cells."""
    rows, sizes = 4000, {"state": 50, "age": 6, "education": 5, "sex": 2}
    cell = {name: rng.integers(0, n, rows) for name, n in sizes.items()}
    eta = pm.Normal("intercept", 0, 1.5)
    for name in sizes:
        effect = pm.Normal(name, 0, pm.HalfNormal(f"sigma_{name}"), shape=sizes[name])
        eta += effect[cell[name]]
    for one, other in (("age", "education"), ("state", "age"), ("sex", "education")):
        sigma = pm.HalfNormal(f"sigma_{one}_{other}")
        effect = pm.Normal(f"{one}_{other}", 0, sigma, shape=(sizes[one], sizes[other]))
        eta += effect[cell[one], cell[other]]
    pm.Bernoulli("yes", logit_p=eta, observed=rng.integers(0, 2, rows))


@in_gallery
def zero_sum_effects(rng):
    """PyMC, reference of `ZeroSumNormal`: party, pollster and house effects of election polls."""
    rows, pollsters, parties, months = 600, 15, 5, 24
    pollster, month = rng.integers(0, pollsters, rows), rng.integers(0, months, rows)
    base = pm.ZeroSumNormal("party", sigma=1.0, shape=parties)
    scale = pm.HalfNormal("scale_house")
    house = pm.ZeroSumNormal("house", sigma=scale, shape=(pollsters, parties), n_zerosum_axes=2)
    scale_month = pm.HalfNormal("scale_month")
    monthly = pm.ZeroSumNormal("monthly", sigma=scale_month, shape=(months, parties))
    p = pm.math.softmax(base + house[pollster] + monthly[month], axis=-1)
    polled = rng.multinomial(1000, np.full(parties, 1 / parties), size=rows)
    pm.Multinomial("polls", n=1000, p=p, observed=polled)


@in_gallery
def random_walks_by_group(rng):
    """PyMC discourse and Gelman's forecasts: a level that drifts, one walk a region."""
    regions, weeks, rows = 12, 52, 2500
    region, week = rng.integers(0, regions, rows), rng.integers(0, weeks, rows)
    sigma = pm.HalfNormal("sigma_walk", 0.2, shape=regions)
    steps = pm.Normal("steps", shape=(regions, weeks))
    level = pm.Normal("start", shape=regions)[:, None] + pt.cumsum(steps * sigma[:, None], axis=1)
    y = rng.binomial(50, 0.3, rows)
    pm.Binomial("y", n=50, logit_p=level[region, week], observed=y)


@in_gallery
def gaussian_random_walks_by_group(rng):
    """PyMC, reference of `GaussianRandomWalk`: centered walks of eight series."""
    series, days = 8, 100
    sigma = pm.HalfNormal("sigma_walk", shape=(series, 1))
    walk = pm.GaussianRandomWalk(
        "walk", sigma=sigma[:, 0], init_dist=pm.Normal.dist(0, 1), shape=(series, days)
    )
    noise = pm.HalfNormal("noise", shape=(series, 1))
    y = rng.normal(size=(series, days)).cumsum(axis=1)
    pm.StudentT("y", nu=5, mu=walk, sigma=noise, observed=y)


@in_gallery
def horseshoe_regression(rng):
    """Piironen and Vehtari 2017: a regularized horseshoe, 400 rows of 60 covariates."""
    rows, columns, relevant = 400, 60, 6
    X = rng.normal(size=(rows, columns))
    sigma = pm.HalfNormal("sigma", 2.0)
    tau = pm.HalfCauchy("tau", relevant / (columns - relevant) * sigma / np.sqrt(rows))
    lam = pm.HalfCauchy("lam", 1.0, shape=columns)
    c2 = pm.InverseGamma("c2", 2.0, 8.0)
    shrunk = tau * lam * pt.sqrt(c2 / (c2 + tau**2 * lam**2))
    beta = pm.Normal("z", shape=columns) * shrunk
    y = X[:, :relevant] @ np.arange(1, relevant + 1) + rng.normal(size=rows)
    pm.Normal("y", pm.Normal("alpha", 0, 2) + X @ beta, sigma, observed=y)


@in_gallery
def horseshoe_logistic_regression(rng):
    """Carvalho, Polson and Scott 2010: a horseshoe of a binary outcome, 500 rows of 40 covariates."""
    rows, columns = 500, 40
    X = rng.normal(size=(rows, columns))
    lam, tau = pm.HalfCauchy("lam", 1.0, shape=columns), pm.HalfCauchy("tau", 0.1)
    beta = pm.Normal("z", shape=columns) * lam * tau
    y = rng.random(rows) < 1 / (1 + np.exp(-2 * X[:, 0]))
    pm.Bernoulli("y", logit_p=pm.Normal("alpha") + X @ beta, observed=y.astype(int))
