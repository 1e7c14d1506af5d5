"""Overdispersed counts with a varying intercept.

    y_i ~ NegativeBinomial(mean = exp(a[group_i] + b * x_i), alpha),  a = mu + tau * a_raw
    mu ~ Normal(0, 2),  tau ~ HalfNormal(1),  a_raw, b ~ Normal(0, 1),  alpha ~ Gamma(2, 0.5)

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
  real<lower=0> alpha;
}
model {
  vector[J] a = mu + tau * a_raw;
  mu ~ normal(0, 2);
  tau ~ normal(0, 1);
  a_raw ~ std_normal();
  b ~ normal(0, 1);
  alpha ~ gamma(2, 0.5);
  y ~ neg_binomial_2_log(a[group] + b * x, alpha);
}
"""


def simulate(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return group, regressor and count of every row; the true alpha is 3."""
    rng = np.random.default_rng(data.SEED)
    grouped = data.varying_intercept(rng, rows=rows, groups=GROUPS, mean=1.0)
    rate = np.exp(grouped.eta) * rng.gamma(3.0, 1 / 3.0, size=rows)
    return grouped.group, grouped.x, rng.poisson(rate)


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
        alpha = pm.Gamma("alpha", 2, 0.5)
        a = mu + tau * a_raw
        mean = pm.math.exp(a[index] + b * regressor)
        pm.NegativeBinomial("y", mu=mean, alpha=alpha, observed=observed)
    return model
