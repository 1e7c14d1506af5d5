"""Two-parameter logistic item response: 500 persons answer 40 items.

    y_i ~ Bernoulli(logit = alpha[item_i] * (theta[person_i] - beta[item_i]))
    theta ~ Normal(0, 1),  beta ~ Normal(0, 2),  alpha ~ LogNormal(0, 0.5)

Source of the model: A. Birnbaum in Lord and Novick, Statistical Theories of Mental Test Scores
(1968); Stan User's Guide, "Item-response theory models". Data: simulated, 20 000 answers.
"""

import numpy as np
import pymc as pm

from benchmarks import data

PERSONS, ITEMS = 500, 40

STAN = """
data {
  int<lower=0> N;
  int<lower=0> P;
  int<lower=0> I;
  array[N] int<lower=1, upper=P> person;
  array[N] int<lower=1, upper=I> item;
  array[N] int<lower=0, upper=1> y;
}
parameters {
  vector[P] theta;
  vector[I] beta;
  vector<lower=0>[I] alpha;
}
model {
  theta ~ std_normal();
  beta ~ normal(0, 2);
  alpha ~ lognormal(0, 0.5);
  y ~ bernoulli_logit(alpha[item] .* (theta[person] - beta[item]));
}
"""


def simulate() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return person, item and answer of every pair, items in turn for each person."""
    rng = np.random.default_rng(data.SEED)
    person = np.repeat(np.arange(PERSONS), ITEMS)
    item = np.tile(np.arange(ITEMS), PERSONS)
    theta = rng.normal(size=PERSONS)
    beta = rng.normal(size=ITEMS)
    alpha = rng.lognormal(0, 0.5, size=ITEMS)
    eta = alpha[item] * (theta[person] - beta[item])
    return person, item, rng.binomial(1, 1 / (1 + np.exp(-eta)))


def stan_data() -> dict:
    person, item, y = simulate()
    return {
        "N": len(y),
        "P": PERSONS,
        "I": ITEMS,
        "person": person + 1,
        "item": item + 1,
        "y": y,
    }


def make() -> pm.Model:
    persons, items, answers = simulate()
    with pm.Model(coords={"person": range(PERSONS), "item": range(ITEMS)}) as model:
        person = pm.Data("person_index", persons)
        item = pm.Data("item_index", items)
        observed = pm.Data("observed", answers)
        theta = pm.Normal("theta", dims="person")
        beta = pm.Normal("beta", 0, 2, dims="item")
        alpha = pm.LogNormal("alpha", 0, 0.5, dims="item")
        eta = alpha[item] * (theta[person] - beta[item])
        pm.Bernoulli("y", logit_p=eta, observed=observed)
    return model
