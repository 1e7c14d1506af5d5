"""Logistic regression on a dense design matrix: one matrix product, nothing hierarchical.

    y_i ~ Bernoulli(logit = intercept + X[i] @ b)
    intercept ~ Normal(0, 1.5),  b ~ Normal(0, 1)

Source of the model: Gelman, Jakulin, Pittau and Su, "A weakly informative default prior
distribution for logistic and other regression models", Annals of Applied Statistics 2 (2008), with
normal priors. Data: simulated, 2 000 rows, 50 columns.
"""

import numpy as np
import pymc as pm

from benchmarks import data

ROWS, COLUMNS = 2_000, 50

STAN = """
data {
  int<lower=0> N;
  int<lower=0> K;
  matrix[N, K] X;
  array[N] int<lower=0, upper=1> y;
}
parameters {
  real intercept;
  vector[K] b;
}
model {
  intercept ~ normal(0, 1.5);
  b ~ std_normal();
  y ~ bernoulli_logit_glm(X, intercept, b);
}
"""


def simulate() -> tuple[np.ndarray, np.ndarray]:
    """Return the design matrix (2000, 50) and the answers (2000,)."""
    rng = np.random.default_rng(data.SEED)
    design = rng.normal(size=(ROWS, COLUMNS))
    eta = design @ rng.normal(0, 0.3, size=COLUMNS)
    return design, rng.binomial(1, 1 / (1 + np.exp(-eta)))


def stan_data() -> dict:
    design, y = simulate()
    return {"N": ROWS, "K": COLUMNS, "X": design, "y": y}


def make() -> pm.Model:
    design, y = simulate()
    with pm.Model(coords={"column": range(COLUMNS)}) as model:
        X = pm.Data("X", design)
        observed = pm.Data("observed", y)
        intercept = pm.Normal("intercept", 0, 1.5)
        b = pm.Normal("b", dims="column")
        pm.Bernoulli("y", logit_p=intercept + X @ b, observed=observed)
    return model
