"""Ordered answers in five categories, with a varying intercept.

    P(y_i <= k) = logistic(cutpoint_k - eta_i),  eta_i = tau * a_raw[group_i] + b * x_i
    cutpoint_1 < ... < cutpoint_4 ~ Normal(0, 2),  tau ~ HalfNormal(1),  a_raw, b ~ Normal(0, 1)

Source of the model: P. McCullagh, "Regression models for ordinal data", Journal of the Royal
Statistical Society B 42 (1980). Data: simulated, 5 000 rows in 200 groups.
"""

import numpy as np
import pymc as pm

from benchmarks import data

ROWS, GROUPS = 5_000, 200
CUTPOINTS = np.array([-1.5, -0.5, 0.5, 1.5])

STAN = """
data {
  int<lower=0> N;
  int<lower=0> J;
  array[N] int<lower=1, upper=J> group;
  vector[N] x;
  array[N] int<lower=1, upper=5> y;
}
parameters {
  ordered[4] cutpoints;
  real<lower=0> tau;
  vector[J] a_raw;
  real b;
}
model {
  vector[J] a = tau * a_raw;
  cutpoints ~ normal(0, 2);
  tau ~ normal(0, 1);
  a_raw ~ std_normal();
  b ~ normal(0, 1);
  y ~ ordered_logistic(a[group] + b * x, cutpoints);
}
"""


def simulate(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return group, regressor and category (0 to 4) of every row."""
    rng = np.random.default_rng(data.SEED)
    grouped = data.varying_intercept(rng, rows=rows, groups=GROUPS, mean=0.0)
    latent = grouped.eta + rng.logistic(size=rows)
    return grouped.group, grouped.x, np.searchsorted(CUTPOINTS, latent)


def stan_data() -> dict:
    group, x, y = simulate()
    return {"N": ROWS, "J": GROUPS, "group": group + 1, "x": x, "y": y + 1}


def make(rows: int = ROWS) -> pm.Model:
    group, x, y = simulate(rows)
    with pm.Model(coords={"group": range(GROUPS), "cutpoint": range(len(CUTPOINTS))}) as model:
        index = pm.Data("group_index", group)
        regressor = pm.Data("x", x)
        observed = pm.Data("observed", y)
        cutpoints = pm.Normal(
            "cutpoints",
            0,
            2,
            transform=pm.distributions.transforms.ordered,
            initval=CUTPOINTS,
            dims="cutpoint",
        )
        tau = pm.HalfNormal("tau", 1)
        a_raw = pm.Normal("a_raw", dims="group")
        b = pm.Normal("b")
        eta = (tau * a_raw)[index] + b * regressor
        pm.OrderedLogistic("y", eta=eta, cutpoints=cutpoints, compute_p=False, observed=observed)
    return model
