"""Posteriors of models that others have published, by `sample` with and without `reparametrize`.

Draws of eight schools come with ArviZ: 4 x 500 of the non-centered model, by PyMC 5.20 (the centered one diverged 19 times). For two models of which no
draws are published, restricted maximum likelihood estimates with their standard errors are: priors are weak, so a posterior mean is within half of one. Radon is from
A. Gelman and J. Hill, Data Analysis Using Regression and Multilevel/Hierarchical Models (2007), section 13.1; sleepstudy from the documentation of lme4.
"""

import arviz as az
import numpy as np
import pytest
from arviz_base import load_arviz_data

import pymc_fastlogp
from benchmarks.suite import case

OPTIONS = {
    "draws": 5000,
    "tune": 1500,
    "chains": 4,
    "cores": 1,
    "random_seed": 7,
    "target_accept": 0.95,
    "progressbar": False,
}
# Of the Monte Carlo errors of both, for ten quantities.
MOST_ERRORS = 4.0
# Estimate and standard error; that of sigma is its scale by the root of twice the degrees of freedom.
ESTIMATES = {
    "radon": {"mu_a": (1.46, 0.05), "mu_b": (-0.68, 0.09), "sigma": (0.75, 0.02)},
    "sleepstudy": {"intercept": (251.405, 6.825), "slope": (10.467, 1.546), "sigma": (25.59, 1.5)},
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("reparametrize", [False, True], ids=["as written", "reparametrized"]),
]


def draws_of(name, reparametrize):
    """Return the posterior of a model of the suite, coefficients of sleepstudy apart."""
    model = case(name).make()
    posterior = pymc_fastlogp.sample(model=model, reparametrize=reparametrize, **OPTIONS).posterior
    draws = {x: posterior[x] for x in posterior.data_vars}
    if "mean" in draws:
        draws |= {"intercept": draws["mean"][..., 0], "slope": draws["mean"][..., 1]}
    return draws


def error_of(x):
    """Return ArviZ's estimate of the error of a mean."""
    return np.asarray(az.mcse(x.to_dataset(name="x"), method="mean")["x"])


def test_eight_schools_agree_with_published_draws(reparametrize):
    published = load_arviz_data("non_centered_eight").posterior
    draws = draws_of("eight_schools", reparametrize)
    for name in ("mu", "tau", "theta"):
        ours, theirs = (x[name].mean(("chain", "draw")).values for x in (draws, published))
        errors = np.hypot(error_of(draws[name]), error_of(published[name]))
        assert (np.abs(ours - theirs) < MOST_ERRORS * errors).all(), name
        # Or else the comparison says nothing.
        assert (errors < published[name].std(("chain", "draw")) / 15).all(), name


@pytest.mark.parametrize("name", ESTIMATES)
def test_posterior_means_agree_with_published_estimates(name, reparametrize):
    draws = draws_of(name, reparametrize)
    for parameter, (estimate, error) in ESTIMATES[name].items():
        mean = float(draws[parameter].mean())
        assert abs(mean - estimate) < error / 2, (parameter, mean)
