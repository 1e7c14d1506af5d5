"""Geometric distributed lags of a regressor, for many series.

    mu_jt = c_j + phi_j * mu_j,t-1 + b * x_jt,  mu_j0 = 0,  y_jt ~ Normal(mu_jt, sigma)
    phi_j ~ Beta(2, 2),  c_j, b ~ Normal(0, 1),  sigma ~ HalfNormal(1)

Source of the model: L. M. Koyck, "Distributed Lags and Investment Analysis" (1954). Data: simulated,
2 000 series of 200 steps.
"""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from benchmarks import data

SERIES, STEPS = 2_000, 200


def simulate(series: int = SERIES, steps: int = STEPS) -> tuple[np.ndarray, np.ndarray]:
    """Return the regressor and the outcome, shape (steps, series)."""
    rng = np.random.default_rng(data.SEED)
    x, noise = rng.normal(size=(2, steps, series))
    c, phi = rng.normal(size=series), rng.beta(2, 2, size=series)
    y, mu = np.empty((steps, series)), np.zeros(series)
    for t in range(steps):
        mu = c + phi * mu + 0.5 * x[t]
        y[t] = mu + 0.7 * noise[t]
    return x, y


def make(series: int = SERIES, steps: int = STEPS) -> pm.Model:
    x, y = simulate(series, steps)
    with pm.Model(coords={"step": range(steps), "series": range(series)}) as model:
        phi, c = pm.Beta("phi", 2, 2, dims="series"), pm.Normal("c", dims="series")
        b, sigma = pm.Normal("b"), pm.HalfNormal("sigma")
        mu = pytensor.scan(
            lambda x, mu, c, phi, b: c + phi * mu + b * x,
            sequences=[pt.as_tensor(x)],
            outputs_info=[pt.zeros(series)],
            non_sequences=[c, phi, b],
            return_updates=False,
        )
        pm.Normal("y", mu, sigma, observed=y, dims=("step", "series"))
    return model
