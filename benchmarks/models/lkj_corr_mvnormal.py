"""Covariance of ten normal variables, with an LKJ prior on the correlations.

    y_i ~ MvNormal(mu, chol = sd[:, None] * L)
    L ~ LKJCorr(n=10, eta=2),  sd ~ HalfNormal(1),  mu ~ Normal(0, 1)

Source of the model: Stan User's Guide, "Multivariate outcomes". Data: simulated, 200 rows of 10.
"""

import numpy as np
import pymc as pm

from benchmarks import data

ROWS, N = 200, 10


def simulate() -> np.ndarray:
    """Return the observations, shape (200, 10)."""
    rng = np.random.default_rng(data.SEED)
    sd = rng.uniform(0.5, 1.5, size=N)
    covariance = np.outer(sd, sd) * (0.6 * np.eye(N) + 0.4)
    return rng.multivariate_normal(np.zeros(N), covariance, size=ROWS)


def make() -> pm.Model:
    with pm.Model(coords={"variable": range(N)}) as model:
        observed = pm.Data("observed", simulate())
        mu = pm.Normal("mu", dims="variable")
        sd = pm.HalfNormal("sd", 1, dims="variable")
        L = pm.LKJCorr("L", n=N, eta=2)
        pm.MvNormal("y", mu, chol=sd[:, None] * L, observed=observed)
    return model
