"""Intercept and slope of a continuous regressor vary by group, centered.

    y_i ~ Normal(a[group_i] + b[group_i] * x_i, sigma)
    a ~ Normal(mu_a, sigma_a),  b ~ Normal(mu_b, sigma_b)

Source of the model: Gelman and Hill, Data Analysis Using Regression and Multilevel/Hierarchical
Models (2007), chapter 13, without the correlation of the two. Data: simulated.
"""

import numpy as np
import pymc as pm

from benchmarks import data

GROUPS = 85

STAN = """
data {
  int<lower=0> N;
  int<lower=0> J;
  array[N] int<lower=1, upper=J> group;
  vector[N] x;
  vector[N] y;
}
parameters {
  real mu_a;
  real mu_b;
  real<lower=0> sigma_a;
  real<lower=0> sigma_b;
  vector[J] a;
  vector[J] b;
  real<lower=0> sigma;
}
model {
  mu_a ~ normal(0, 2);
  mu_b ~ normal(0, 2);
  sigma_a ~ normal(0, 1);
  sigma_b ~ normal(0, 1);
  a ~ normal(mu_a, sigma_a);
  b ~ normal(mu_b, sigma_b);
  sigma ~ normal(0, 1);
  y ~ normal(a[group] + b[group] .* x, sigma);
}
"""


def simulate(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return group, regressor and outcome of `rows` rows."""
    rng = np.random.default_rng(data.SEED)
    grouped = data.varying_intercept(rng, rows=rows, groups=GROUPS, mean=1.0, slope=0.0)
    slope = rng.normal(0.5, 0.3, size=GROUPS)
    y = rng.normal(grouped.eta + slope[grouped.group] * grouped.x, 0.8)
    return grouped.group, grouped.x, y


def stan_data(rows: int) -> dict:
    group, x, y = simulate(rows)
    return {"N": rows, "J": GROUPS, "group": group + 1, "x": x, "y": y}


def make(rows: int) -> pm.Model:
    group, x, y = simulate(rows)
    with pm.Model(coords={"group": range(GROUPS)}) as model:
        index = pm.Data("group_index", group)
        regressor = pm.Data("x", x)
        observed = pm.Data("observed", y)
        mu_a = pm.Normal("mu_a", 0, 2)
        mu_b = pm.Normal("mu_b", 0, 2)
        sigma_a = pm.HalfNormal("sigma_a", 1)
        sigma_b = pm.HalfNormal("sigma_b", 1)
        a = pm.Normal("a", mu_a, sigma_a, dims="group")
        b = pm.Normal("b", mu_b, sigma_b, dims="group")
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", a[index] + b[index] * regressor, sigma, observed=observed)
    return model
