"""Four correlated coefficients by group, non-centered, under an LKJ prior.

    y_i ~ Normal(sum_k beta[group_i, k] * X[i, k], sigma),  beta = mu0 + z @ chol.T
    z ~ Normal(0, 1),  chol ~ LKJCholeskyCov(eta=2, sd ~ Exponential(1))

Source of the model: Stan User's Guide, "Multivariate priors for hierarchical models"; R. McElreath,
Statistical Rethinking (2020), chapter 14. Data: simulated, 100 groups.
"""

import numpy as np
import pymc as pm

from benchmarks import data

GROUPS, COEFFICIENTS = 100, 4

STAN = """
data {
  int<lower=0> N;
  int<lower=0> J;
  int<lower=1> K;
  array[N] int<lower=1, upper=J> group;
  matrix[N, K] X;
  vector[N] y;
}
parameters {
  row_vector[K] mu0;
  cholesky_factor_corr[K] L;
  vector<lower=0>[K] sd;
  matrix[J, K] z;
  real<lower=0> sigma;
}
model {
  matrix[J, K] beta = rep_matrix(mu0, J) + z * diag_pre_multiply(sd, L)';
  mu0 ~ normal(0, 1);
  L ~ lkj_corr_cholesky(2);
  sd ~ exponential(1);
  to_vector(z) ~ std_normal();
  sigma ~ normal(0, 1);
  y ~ normal(rows_dot_product(beta[group], X), sigma);
}
"""


def simulate(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return group (N,), design matrix (N, K) with an intercept, and outcome (N,)."""
    rng = np.random.default_rng(data.SEED)
    group = rng.integers(GROUPS, size=rows)
    design = np.column_stack([np.ones(rows), rng.normal(size=(rows, COEFFICIENTS - 1))])
    covariance = 0.3 * (0.5 * np.eye(COEFFICIENTS) + 0.5)
    beta = rng.multivariate_normal(np.linspace(-1, 1, COEFFICIENTS), covariance, size=GROUPS)
    return group, design, rng.normal((beta[group] * design).sum(-1), 0.8)


def stan_data(rows: int) -> dict:
    group, design, y = simulate(rows)
    return {"N": rows, "J": GROUPS, "K": COEFFICIENTS, "group": group + 1, "X": design, "y": y}


def make(rows: int) -> pm.Model:
    group, design, y = simulate(rows)
    coords = {"group": range(GROUPS), "coefficient": range(COEFFICIENTS)}
    with pm.Model(coords=coords) as model:
        g = pm.Data("group_index", group)
        X = pm.Data("X", design)
        observed = pm.Data("observed", y)
        mu0 = pm.Normal("mu0", dims="coefficient")
        chol, _, _ = pm.LKJCholeskyCov(
            "chol", n=COEFFICIENTS, eta=2, sd_dist=pm.Exponential.dist(1, shape=COEFFICIENTS)
        )
        z = pm.Normal("z", dims=("group", "coefficient"))
        sigma = pm.HalfNormal("sigma", 1)
        mu = ((mu0 + z @ chol.T)[g] * X).sum(-1)
        pm.Normal("y", mu, sigma, observed=observed)
    return model
