"""A regression on columns that are not centered: the calendar year, age and its square, and temperature.

    y_i ~ Normal(intercept + x_i @ beta, sigma)

A common way to write a model, and why coefficients are correlated: the intercept is the value in the year 0. Data: simulated, 1 000 rows.
"""

import numpy as np
import pymc as pm

from benchmarks import data

ROWS = 1_000
COLUMNS = ["year", "age", "age squared", "temperature"]
# Scales of the priors: of the intercept, and of the coefficients.
OF_INTERCEPT, OF_SLOPES = 200.0, np.array([1.0, 1.0, 0.1, 1.0])


def simulate() -> tuple[np.ndarray, np.ndarray]:
    """Return the columns and what is measured."""
    rng = np.random.default_rng(data.SEED)
    year, age = rng.integers(1995, 2025, ROWS).astype(float), rng.uniform(20, 70, ROWS)
    x = np.column_stack([year, age, age**2, rng.normal(15, 5, ROWS)])
    return x, rng.normal(x @ [0.05, 0.3, -0.003, 0.02] - 100.0, 2.0)


def make() -> pm.Model:
    x, y = simulate()
    with pm.Model(coords={"column": COLUMNS}) as model:
        intercept = pm.Normal("intercept", 0, OF_INTERCEPT)
        beta = pm.Normal("beta", 0, OF_SLOPES, dims="column")
        sigma = pm.HalfNormal("sigma", 5)
        pm.Normal("y", intercept + x @ beta, sigma, observed=y)
    return model
