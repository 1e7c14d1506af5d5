"""Correlated intercepts and slopes of reaction times over days without sleep, non-centered.

    y_i ~ Normal(beta[subject_i, 0] + beta[subject_i, 1] * days_i, sigma),  beta = mean + z @ chol.T
    z ~ Normal(0, 1),  chol ~ LKJCholeskyCov(eta=2, sd ~ HalfNormal([50, 15]))

The model and its data are those of the case study: 18 subjects, 10 days (lme4's ``sleepstudy``).
"""

import pymc as pm

from case_studies import sleepstudy_model

# The names of the parameters are those of lkj_slopes.
STAN = """
data {
  int<lower=0> N;
  int<lower=0> J;
  array[N] int<lower=1, upper=J> subject;
  vector[N] days;
  vector[N] reaction;
}
parameters {
  row_vector[2] mu0;
  cholesky_factor_corr[2] L;
  vector<lower=0>[2] sd;
  matrix[J, 2] z;
  real<lower=0> sigma;
}
model {
  matrix[J, 2] beta = rep_matrix(mu0, J) + z * diag_pre_multiply(sd, L)';
  mu0[1] ~ normal(250, 100);
  mu0[2] ~ normal(0, 25);
  L ~ lkj_corr_cholesky(2);
  sd[1] ~ normal(0, 50);
  sd[2] ~ normal(0, 15);
  to_vector(z) ~ std_normal();
  sigma ~ normal(0, 50);
  reaction ~ normal(beta[subject, 1] + beta[subject, 2] .* days, sigma);
}
"""


def stan_data() -> dict:
    study = sleepstudy_model.data()
    return {
        "N": len(study.reaction),
        "J": len(study.subjects),
        "subject": study.subject + 1,
        "days": study.days,
        "reaction": study.reaction,
    }


def make() -> pm.Model:
    return sleepstudy_model.make()
