"""Generalized linear models of the example gallery."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.gallery.registry import in_gallery


@in_gallery
def binomial_regression(rng):
    """PyMC notebook "Binomial regression"."""
    x = np.linspace(-1, 1, 100)
    p = pm.math.invlogit(pm.Normal("beta0") + pm.Normal("beta1") * x)
    pm.Binomial("y", n=20, p=p, observed=rng.binomial(20, 0.5, size=100))


@in_gallery
def poisson_regression(rng):
    """PyMC notebook "GLM: Poisson Regression"."""
    a, n = rng.integers(0, 2, 4000), rng.integers(0, 2, 4000)
    b = [pm.Normal(f"b{i}", 0, 10) for i in range(4)]
    mu = pm.math.exp(b[0] + b[1] * a + b[2] * n + b[3] * a * n)
    pm.Poisson("y", mu=mu, observed=rng.poisson(5, 4000))


@in_gallery
def negative_binomial_regression(rng):
    """PyMC notebook "GLM: Negative Binomial Regression"."""
    a, n = rng.integers(0, 2, 4000), rng.integers(0, 2, 4000)
    b = [pm.Normal(f"b{i}", 0, 10) for i in range(4)]
    mu = pm.math.exp(b[0] + b[1] * a + b[2] * n + b[3] * a * n)
    pm.NegativeBinomial(
        "y", mu=mu, alpha=pm.Exponential("alpha", 0.5), observed=rng.poisson(5, 4000)
    )


@in_gallery
def robust_regression_with_outliers(rng):
    """PyMC notebook "GLM: Robust Regression using Custom Likelihood for Outlier Classification"."""
    x, y, e = rng.normal(size=(3, 20))
    b0, b1 = pm.Normal("b0", 0, 10), pm.Normal("b1", 0, 10)
    frac = pm.Uniform("frac_outliers", 0.0, 0.5)
    out = pm.Normal.dist(pm.Normal("y_out", 0, 10), e**2 + pm.HalfNormal("s_out", 10))
    inlier = pm.Normal.dist(b0 + b1 * x, np.abs(e) + 0.1)
    pm.Potential(
        "likelihood",
        pt.sum(pt.logaddexp(pt.log1p(-frac) + pm.logp(inlier, y), pt.log(frac) + pm.logp(out, y))),
    )


@in_gallery
def rolling_regression(rng):
    """PyMC notebook "Rolling Regression"."""
    alpha = pm.GaussianRandomWalk("alpha", sigma=pm.Exponential("s_a", 50.0), shape=400)
    beta = pm.GaussianRandomWalk("beta", sigma=pm.Exponential("s_b", 50.0), shape=400)
    mu = alpha + beta * rng.normal(size=400)
    pm.Normal("y", mu=mu, sigma=pm.HalfNormal("sd", 0.1), observed=rng.normal(size=400))


@in_gallery
def ordinal_regression(rng):
    """PyMC notebook "Regression Models with Ordered Categorical Outcomes"."""
    cuts = pm.Normal(
        "cutpoints",
        np.linspace(-2, 2, 9),
        0.5,
        transform=pm.distributions.transforms.ordered,
        initval=np.linspace(-2, 2, 9),
    )
    eta = rng.normal(size=(500, 3)) @ pm.Normal("beta", shape=3)
    pm.OrderedLogistic("y", cutpoints=cuts, eta=eta, observed=rng.integers(0, 10, 500))


@in_gallery
def discrete_choice(rng):
    """PyMC notebook "Discrete Choice and Random Utility Models"."""
    n, k = 900, 5
    alphas, beta = pm.Normal("alpha", 0, 1, shape=k), pm.Normal("beta", 0, 1, shape=2)
    cost = rng.uniform(1, 3, size=(2, n, k))
    u = [
        alphas[i] * int(i < k - 1) + beta[0] * cost[0][:, i] + beta[1] * cost[1][:, i]
        for i in range(k)
    ]
    p = pm.math.softmax(pt.stack(u).T, axis=1)
    pm.Categorical("y", p=p, observed=rng.integers(0, k, n))


@in_gallery
def truncated_and_censored_regression(rng):
    """PyMC notebook "Bayesian regression with truncated or censored data"."""
    mu = pm.Normal("slope") * rng.normal(size=500) + pm.Normal("intercept")
    sigma = pm.HalfNormal("sigma")
    y = rng.normal(size=500)
    pm.Censored("y", pm.Normal.dist(mu, sigma), -1, 1, observed=np.clip(y, -1, 1))
    inside = pm.Normal.dist(mu[np.abs(y) < 1], sigma)
    pm.Truncated("t", inside, lower=-1, upper=1, observed=y[np.abs(y) < 1])


@in_gallery
def simpsons_paradox(rng):
    """PyMC notebook "Simpson's paradox"."""
    group = np.repeat(range(5), 20)
    b0 = pm.Normal("b0", pm.Normal("m0"), pm.Gamma("s0", 2, 2), shape=5)
    b1 = pm.Normal("b1", pm.Normal("m1"), pm.Gamma("s1", 2, 2), shape=5)
    mu = b0[group] + b1[group] * rng.normal(size=100)
    pm.Normal("y", mu, pm.Gamma("sigma", 2, 2), observed=rng.normal(size=100))


@in_gallery
def moderation_analysis(rng):
    """PyMC notebook "Bayesian moderation analysis"."""
    x, m = rng.normal(size=(2, 400))
    b = pm.Normal("b", 0, 0.5, shape=4)
    pm.Normal(
        "y",
        b[0] + b[1] * x + b[2] * x * m + b[3] * m,
        pm.HalfCauchy("sigma", 1),
        observed=rng.normal(size=400),
    )


@in_gallery
def spline(rng):
    """PyMC notebook "Splines"."""
    w = pm.Normal("w", mu=0, sigma=3, shape=17)
    basis = np.maximum(0, rng.normal(size=(827, 17)))
    mu = pm.Normal("a", 100, 5) + pm.math.dot(basis, w.T)
    pm.Normal("D", mu=mu, sigma=pm.Exponential("sigma", 1), observed=rng.normal(100, 6, size=827))
