"""Robust regression of marks of pupils by many teachers: a long and a short crossed factor.

    y_i ~ StudentT(nu, mu + tau_p * p[pupil_i] + tau_t * t[teacher_i] + b * x_i, sigma)
    nu ~ Gamma(2, 0.1),  mu, b ~ Normal(0, 2),  tau_p, tau_t, sigma ~ HalfNormal(1),  p, t ~ Normal(0, 1)

Data: simulated, 25 000 marks of 10 000 pupils by 200 teachers.
"""

import numpy as np
import pymc as pm

from benchmarks import data

ROWS = 25_000
LEVELS = {"pupil": 10_000, "teacher": 200}


def simulate() -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Return pupil and teacher, a covariate, and the mark of every row."""
    rng = np.random.default_rng(data.SEED)
    index = {factor: rng.integers(levels, size=ROWS) for factor, levels in LEVELS.items()}
    x = rng.normal(size=ROWS)
    effects = sum(rng.normal(0, 0.5, size=n)[index[factor]] for factor, n in LEVELS.items())
    return index, x, 0.3 * x + effects + 0.7 * rng.standard_t(4, size=ROWS)


def make() -> pm.Model:
    indices, x, y = simulate()
    with pm.Model(coords={factor: range(n) for factor, n in LEVELS.items()}) as model:
        mean = pm.Normal("mu", 0, 2) + pm.Normal("b", 0, 2) * x
        for factor, index in indices.items():
            tau = pm.HalfNormal(f"tau_{factor}", 1)
            mean += (tau * pm.Normal(f"raw_{factor}", dims=factor))[index]
        sigma = pm.HalfNormal("sigma", 1)
        nu = pm.Gamma("nu", 2, 0.1)
        pm.StudentT("y", nu=nu, mu=mean, sigma=sigma, observed=y)
    return model
