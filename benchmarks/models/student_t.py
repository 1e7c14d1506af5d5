"""Robust regression with a varying intercept.

    y_i ~ StudentT(nu, a[group_i] + b * x_i, sigma),  a = mu + tau * a_raw
    nu ~ Gamma(2, 0.1),  mu ~ Normal(0, 2),  tau, sigma ~ HalfNormal(1),  a_raw, b ~ Normal(0, 1)

Source of the model: J. Kruschke, "Bayesian estimation supersedes the t test", Journal of
Experimental Psychology 142 (2013); the prior of nu is that of M. Juarez and M. Steel, "Model-based
clustering of non-Gaussian panel data" (2010). Data: simulated, 5 000 rows in 200 groups.
"""

import numpy as np
import pymc as pm

from benchmarks import data

ROWS, GROUPS = 5_000, 200

STAN = """
data {
  int<lower=0> N;
  int<lower=0> J;
  array[N] int<lower=1, upper=J> group;
  vector[N] x;
  vector[N] y;
}
parameters {
  real mu;
  real<lower=0> tau;
  vector[J] a_raw;
  real b;
  real<lower=0> sigma;
  real<lower=0> nu;
}
model {
  vector[J] a = mu + tau * a_raw;
  mu ~ normal(0, 2);
  tau ~ normal(0, 1);
  a_raw ~ std_normal();
  b ~ normal(0, 1);
  sigma ~ normal(0, 1);
  nu ~ gamma(2, 0.1);
  y ~ student_t(nu, a[group] + b * x, sigma);
}
"""


def simulate(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return group, regressor and outcome of every row; the true nu is 4."""
    rng = np.random.default_rng(data.SEED)
    grouped = data.varying_intercept(rng, rows=rows, groups=GROUPS, mean=1.0)
    return grouped.group, grouped.x, grouped.eta + 0.7 * rng.standard_t(4, size=rows)


def stan_data() -> dict:
    group, x, y = simulate()
    return {"N": ROWS, "J": GROUPS, "group": group + 1, "x": x, "y": y}


def make(rows: int = ROWS) -> pm.Model:
    group, x, y = simulate(rows)
    with pm.Model(coords={"group": range(GROUPS)}) as model:
        index = pm.Data("group_index", group)
        regressor = pm.Data("x", x)
        observed = pm.Data("observed", y)
        mu = pm.Normal("mu", 0, 2)
        tau = pm.HalfNormal("tau", 1)
        a_raw = pm.Normal("a_raw", dims="group")
        b = pm.Normal("b")
        sigma = pm.HalfNormal("sigma", 1)
        nu = pm.Gamma("nu", 2, 0.1)
        a = mu + tau * a_raw
        pm.StudentT("y", nu=nu, mu=a[index] + b * regressor, sigma=sigma, observed=observed)
    return model
