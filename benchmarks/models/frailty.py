"""Lifetimes of patients, of which some had not ended, with a frailty of each hospital.

    t_i ~ Weibull(shape, exp((eta_i + a[hospital_i]) / -shape)),  eta = b0 + b @ x_i,  censored at the end of the study
    a ~ Normal(0, tau): log-normal frailty

Source of the model: Ibrahim, Chen and Sinha, Bayesian Survival Analysis (2001), chapter 4. Data: simulated, 1 500 patients in 40 hospitals of
very different sizes.
"""

import numpy as np
import pymc as pm

from benchmarks import data

ROWS, HOSPITALS = 1_500, 40
END = 4.0


def simulate() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return hospital, two covariates, and how long each patient was followed."""
    rng = np.random.default_rng(data.SEED)
    hospital = rng.choice(HOSPITALS, size=ROWS, p=rng.dirichlet(np.full(HOSPITALS, 0.7)))
    x = np.column_stack([rng.normal(size=ROWS), rng.integers(0, 2, ROWS)])
    log_hazard = -0.8 + x @ [0.4, -0.5] + 0.5 * rng.normal(size=HOSPITALS)[hospital]
    time = rng.weibull(1.4, ROWS) * np.exp(-log_hazard / 1.4)
    return hospital, x, np.minimum(time, END)


def likelihood(a: pm.Distribution, hospital: np.ndarray, x: np.ndarray, time: np.ndarray) -> None:
    """Add everything but the frailties ``a`` to the model whose context is open."""
    shape, b0 = pm.Gamma("shape", 4, 4), pm.Normal("b0", 0, 2)
    b = pm.Normal("b", dims="column")
    scale = pm.math.exp(-(b0 + a[hospital] + x @ b) / shape)
    lifetime = pm.Weibull.dist(alpha=shape, beta=scale)
    pm.Censored("time", lifetime, lower=None, upper=END, observed=time)


def make() -> pm.Model:
    coords = {"hospital": range(HOSPITALS), "column": ["age", "treated"]}
    with pm.Model(coords=coords) as model:
        tau = pm.HalfNormal("tau", 1)
        a = pm.Normal("a", 0, tau, dims="hospital")
        likelihood(a, *simulate())
    return model
