"""Counts with a varying intercept.

    y_i ~ Poisson(exp(a[group_i] + b * x_i)),  a = mu + tau * a_raw
    mu ~ Normal(0, 2),  tau ~ HalfNormal(1),  a_raw ~ Normal(0, 1),  b ~ Normal(0, 1)

Source of the model: Gelman and Hill, Data Analysis Using Regression and Multilevel/Hierarchical
Models (2007), chapter 15. Data: simulated, 5 000 rows in 200 groups.
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
  array[N] int<lower=0> y;
}
parameters {
  real mu;
  real<lower=0> tau;
  vector[J] a_raw;
  real b;
}
model {
  vector[J] a = mu + tau * a_raw;
  mu ~ normal(0, 2);
  tau ~ normal(0, 1);
  a_raw ~ std_normal();
  b ~ normal(0, 1);
  y ~ poisson_log(a[group] + b * x);
}
"""


def simulate() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return group, regressor and count of every row."""
    rng = np.random.default_rng(data.SEED)
    grouped = data.varying_intercept(rng, rows=ROWS, groups=GROUPS, mean=1.0)
    return grouped.group, grouped.x, rng.poisson(np.exp(grouped.eta))


def stan_data() -> dict:
    group, x, y = simulate()
    return {"N": ROWS, "J": GROUPS, "group": group + 1, "x": x, "y": y}


def make() -> pm.Model:
    group, x, y = simulate()
    with pm.Model(coords={"group": range(GROUPS)}) as model:
        index = pm.Data("group_index", group)
        regressor = pm.Data("x", x)
        observed = pm.Data("observed", y)
        mu = pm.Normal("mu", 0, 2)
        tau = pm.HalfNormal("tau", 1)
        a_raw = pm.Normal("a_raw", dims="group")
        b = pm.Normal("b")
        a = mu + tau * a_raw
        pm.Poisson("y", pm.math.exp(a[index] + b * regressor), observed=observed)
    return model
