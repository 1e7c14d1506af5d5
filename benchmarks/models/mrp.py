"""The regression of multilevel regression and poststratification: a survey answer by demography.

    y_i ~ Bernoulli(logit = intercept + male * sex_i + sum_f sigma_f * z_f[f_i])
    z_f ~ Normal(0, 1),  sigma_f ~ HalfNormal(1),  f in state (51), age (6), education (5), ethnicity (4)

Source of the model: A. Gelman and T. Little, "Poststratification into many categories using
hierarchical logistic regression", Survey Methodology 23 (1997). Data: simulated.
"""

import numpy as np
import pymc as pm

from benchmarks import data

LEVELS = {"state": 51, "age": 6, "education": 5, "ethnicity": 4}

STAN = """
data {
  int<lower=0> N;
  array[N] int<lower=1, upper=51> state;
  array[N] int<lower=1, upper=6> age;
  array[N] int<lower=1, upper=5> education;
  array[N] int<lower=1, upper=4> ethnicity;
  vector[N] sex;
  array[N] int<lower=0, upper=1> y;
}
parameters {
  real intercept;
  real male;
  real<lower=0> sigma_state;
  vector[51] z_state;
  real<lower=0> sigma_age;
  vector[6] z_age;
  real<lower=0> sigma_education;
  vector[5] z_education;
  real<lower=0> sigma_ethnicity;
  vector[4] z_ethnicity;
}
model {
  vector[51] by_state = sigma_state * z_state;
  vector[6] by_age = sigma_age * z_age;
  vector[5] by_education = sigma_education * z_education;
  vector[4] by_ethnicity = sigma_ethnicity * z_ethnicity;
  intercept ~ normal(0, 1.5);
  male ~ normal(0, 1);
  sigma_state ~ normal(0, 1);
  z_state ~ std_normal();
  sigma_age ~ normal(0, 1);
  z_age ~ std_normal();
  sigma_education ~ normal(0, 1);
  z_education ~ std_normal();
  sigma_ethnicity ~ normal(0, 1);
  z_ethnicity ~ std_normal();
  y ~ bernoulli_logit(intercept + male * sex + by_state[state] + by_age[age]
                      + by_education[education] + by_ethnicity[ethnicity]);
}
"""


def simulate(rows: int) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Return the index of each factor, sex and answer of `rows` respondents."""
    rng = np.random.default_rng(data.SEED)
    index = {factor: rng.integers(levels, size=rows) for factor, levels in LEVELS.items()}
    sex = rng.binomial(1, 0.5, size=rows)
    effects = {factor: rng.normal(0, 0.4, size=levels) for factor, levels in LEVELS.items()}
    eta = -0.2 * sex + sum(effects[factor][index[factor]] for factor in LEVELS)
    return index, sex, rng.binomial(1, 1 / (1 + np.exp(-eta)))


def stan_data(rows: int) -> dict:
    index, sex, y = simulate(rows)
    return {"N": rows, **{f: i + 1 for f, i in index.items()}, "sex": sex, "y": y}


def make(rows: int) -> pm.Model:
    indices, is_male, answers = simulate(rows)
    with pm.Model(coords={factor: range(levels) for factor, levels in LEVELS.items()}) as model:
        sex = pm.Data("sex", is_male)
        observed = pm.Data("observed", answers)
        intercept = pm.Normal("intercept", 0, 1.5)
        male = pm.Normal("male", 0, 1)
        eta = intercept + male * sex
        for factor, index in indices.items():
            sigma = pm.HalfNormal(f"sigma_{factor}", 1)
            z = pm.Normal(f"z_{factor}", dims=factor)
            eta += (sigma * z)[pm.Data(f"{factor}_index", index)]
        pm.Bernoulli("y", logit_p=eta, observed=observed)
    return model
