"""Lecture ratings at ETH Zurich: students and lecturers crossed, as if the ratings were Gaussian.

    y_i ~ Normal(mu + b * service_i + s[student_i] + d[lecturer_i], sigma)
    s ~ Normal(0, sigma_s),  d ~ Normal(0, sigma_d)

Source of model and data: ``InstEval`` of the R package lme4 (D. Bates, M. Maechler, B. Bolker and
S. Walker, "Fitting linear mixed-effects models using lme4", Journal of Statistical Software 67).
"""

import pymc as pm

from benchmarks import data

STAN = """
data {
  int<lower=0> N;
  int<lower=0> S;
  int<lower=0> D;
  array[N] int<lower=1, upper=S> student;
  array[N] int<lower=1, upper=D> lecturer;
  vector[N] service;
  vector[N] rating;
}
parameters {
  real mu;
  real b;
  real<lower=0> sigma_s;
  real<lower=0> sigma_d;
  vector[S] s;
  vector[D] d;
  real<lower=0> sigma;
}
model {
  mu ~ normal(3, 1);
  b ~ normal(0, 1);
  sigma_s ~ normal(0, 1);
  sigma_d ~ normal(0, 1);
  s ~ normal(0, sigma_s);
  d ~ normal(0, sigma_d);
  sigma ~ normal(0, 1);
  rating ~ normal(mu + b * service + s[student] + d[lecturer], sigma);
}
"""


def stan_data() -> dict:
    ratings = data.insteval()
    return {
        "N": len(ratings.rating),
        "S": len(ratings.students),
        "D": len(ratings.lecturers),
        "student": ratings.student + 1,
        "lecturer": ratings.lecturer + 1,
        "service": ratings.service,
        "rating": ratings.rating,
    }


def make() -> pm.Model:
    ratings = data.insteval()
    coords = {"student": ratings.students, "lecturer": ratings.lecturers}
    with pm.Model(coords=coords) as model:
        student = pm.Data("student_index", ratings.student)
        lecturer = pm.Data("lecturer_index", ratings.lecturer)
        service = pm.Data("service", ratings.service)
        observed = pm.Data("observed", ratings.rating)
        mu = pm.Normal("mu", 3, 1)
        b = pm.Normal("b")
        sigma_s = pm.HalfNormal("sigma_s", 1)
        sigma_d = pm.HalfNormal("sigma_d", 1)
        s = pm.Normal("s", 0, sigma_s, dims="student")
        d = pm.Normal("d", 0, sigma_d, dims="lecturer")
        sigma = pm.HalfNormal("sigma", 1)
        eta = mu + b * service + s[student] + d[lecturer]
        pm.Normal("rating", eta, sigma, observed=observed)
    return model
