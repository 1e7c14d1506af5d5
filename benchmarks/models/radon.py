"""Radon in Minnesota houses: intercept and slope vary by county, non-centered.

    y_i ~ Normal(a[county_i] + b[county_i] * floor_i, sigma)
    a = mu_a + sigma_a * a_raw,  b = mu_b + sigma_b * b_raw,  a_raw, b_raw ~ Normal(0, 1)

Source of the model: Gelman and Hill, Data Analysis Using Regression and Multilevel/Hierarchical
Models (2007), chapter 13. Data: ``radon`` of the R package HLMdiag, or simulated at other sizes.
"""

import pymc as pm

from benchmarks import data

STAN = """
data {
  int<lower=0> N;
  int<lower=0> J;
  array[N] int<lower=1, upper=J> county;
  vector[N] floor_measure;
  vector[N] log_radon;
}
parameters {
  real mu_a;
  real mu_b;
  real<lower=0> sigma_a;
  real<lower=0> sigma_b;
  vector[J] a_raw;
  vector[J] b_raw;
  real<lower=0> sigma;
}
model {
  vector[J] a = mu_a + sigma_a * a_raw;
  vector[J] b = mu_b + sigma_b * b_raw;
  mu_a ~ normal(0, 2);
  mu_b ~ normal(0, 2);
  sigma_a ~ normal(0, 1);
  sigma_b ~ normal(0, 1);
  a_raw ~ std_normal();
  b_raw ~ std_normal();
  sigma ~ normal(0, 1);
  log_radon ~ normal(a[county] + b[county] .* floor_measure, sigma);
}
"""


def stan_data(rows: int | None = None) -> dict:
    houses = data.radon(rows)
    return {
        "N": len(houses.log_radon),
        "J": len(houses.counties),
        "county": houses.county + 1,
        "floor_measure": houses.floor,
        "log_radon": houses.log_radon,
    }


def make(rows: int | None = None) -> pm.Model:
    houses = data.radon(rows)
    with pm.Model(coords={"county": houses.counties}) as model:
        county = pm.Data("county_index", houses.county)
        floor = pm.Data("floor", houses.floor)
        observed = pm.Data("observed", houses.log_radon)
        mu_a = pm.Normal("mu_a", 0, 2)
        mu_b = pm.Normal("mu_b", 0, 2)
        sigma_a = pm.HalfNormal("sigma_a", 1)
        sigma_b = pm.HalfNormal("sigma_b", 1)
        a_raw = pm.Normal("a_raw", dims="county")
        b_raw = pm.Normal("b_raw", dims="county")
        sigma = pm.HalfNormal("sigma", 1)
        a = pm.Deterministic("a", mu_a + sigma_a * a_raw, dims="county")
        b = pm.Deterministic("b", mu_b + sigma_b * b_raw, dims="county")
        pm.Normal("log_radon", a[county] + b[county] * floor, sigma, observed=observed)
    return model
