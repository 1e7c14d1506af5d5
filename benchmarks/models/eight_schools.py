"""Eight schools: effects of coaching on test scores, partially pooled.

    y_j ~ Normal(theta_j, sigma_j),  theta_j = mu + tau * eta_j,  eta_j ~ Normal(0, 1)
    mu ~ Normal(0, 5),  tau ~ HalfCauchy(5)

Source of model and data: D. B. Rubin, "Estimation in parallel randomized experiments", Journal of
Educational Statistics 6 (1981); Gelman et al., Bayesian Data Analysis, section 5.5.
"""

import numpy as np
import pymc as pm

EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
STANDARD_ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

STAN = """
data {
  int<lower=0> J;
  vector[J] y;
  vector<lower=0>[J] sigma;
}
parameters {
  real mu;
  real<lower=0> tau;
  vector[J] eta;
}
model {
  mu ~ normal(0, 5);
  tau ~ cauchy(0, 5);
  eta ~ std_normal();
  y ~ normal(mu + tau * eta, sigma);
}
"""


def stan_data() -> dict:
    return {"J": len(EFFECT), "y": EFFECT, "sigma": STANDARD_ERROR}


def make() -> pm.Model:
    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        sigma = pm.Data("sigma", STANDARD_ERROR, dims="school")
        observed = pm.Data("observed", EFFECT, dims="school")
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        eta = pm.Normal("eta", dims="school")
        theta = pm.Deterministic("theta", mu + tau * eta, dims="school")
        pm.Normal("y", theta, sigma, observed=observed, dims="school")
    return model
