"""Mixtures and survival in the example gallery, and mixtures by group."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.gallery.registry import in_gallery


@in_gallery
def gaussian_mixture(rng):
    """PyMC notebook "Gaussian Mixture Model"."""
    mu = pm.Normal(
        "mu",
        0,
        10,
        transform=pm.distributions.transforms.ordered,
        initval=[-4.0, 0.0, 4.0],
        shape=3,
    )
    w = pm.Dirichlet("weights", np.ones(3))
    sigma = pm.HalfNormal("sigma", 1, shape=3)
    pm.NormalMixture("x", w=w, mu=mu, sigma=sigma, observed=rng.normal(size=500) * 3)


@in_gallery
def dirichlet_process_of_poissons(rng):
    """PyMC notebook "Dirichlet process mixtures for density estimation", sunspots."""
    beta = pm.Beta("beta", 1.0, pm.Gamma("alpha", 1.0, 1.0), shape=30)
    w = beta * pt.concatenate([[1], pt.extra_ops.cumprod(1 - beta)[:-1]])
    mu = pm.Uniform("mu", 0.0, 300.0, shape=30)
    components = pm.Poisson.dist(mu=mu, shape=(30,))
    pm.Mixture("obs", w / w.sum(), components, observed=rng.poisson(50, size=289))


@in_gallery
def dependent_density_regression(rng):
    """PyMC notebook "Dependent density regression"."""
    x = np.linspace(-1, 1, 221)[:, None]
    v = pm.math.invprobit(
        pm.Normal("alpha", 0, 5, shape=20) + pm.Normal("beta", 0, 5, shape=20) * x
    )
    left = pt.concatenate([pt.ones((221, 1)), pt.extra_ops.cumprod(1 - v, axis=1)[:, :-1]], axis=1)
    mu = pm.Normal("gamma", 0, 10, shape=20) + pm.Normal("delta", 0, 10, shape=20) * x
    tau = pm.Gamma("tau", 1, 1, shape=20)
    pm.NormalMixture("obs", v * left, mu, tau=tau, observed=rng.normal(size=221))


@in_gallery
def dirichlet_mixture_of_multinomials(rng):
    """PyMC notebook "Dirichlet mixtures of multinomials"."""
    frac, conc = pm.Dirichlet("frac", a=np.ones(5)), pm.LogNormal("conc", mu=1, sigma=1)
    table = rng.multinomial(50, np.ones(5) / 5, size=10)
    pm.DirichletMultinomial("counts", n=50, a=frac * conc, observed=table)


@in_gallery
def survival_mastectomy(rng):
    """PyMC notebook "Bayesian Survival Analysis"."""
    lambda0 = pm.Gamma("lambda0", 0.01, 0.01, shape=76)
    effect = pm.Normal("beta", 0, sigma=pm.Uniform("sigma", 0, 10.0))
    lam = pt.outer(pt.exp(effect * rng.integers(0, 2, 44)), lambda0)
    exposure = rng.uniform(0.1, 3.0, size=(44, 76))
    pm.Poisson("obs", exposure * lam, observed=rng.integers(0, 2, size=(44, 76)))


@in_gallery
def survival_weibull_aft(rng):
    """PyMC notebook "Reparameterizing the Weibull Accelerated Failure Time Model"."""
    y = rng.gamma(2, 1, size=300).round(2) + 0.01
    alpha = pt.exp(pm.Normal("alpha_sd", 0.0, 1) * 10)
    b = pt.exp(pm.Normal("mu", 0.0, 100) / alpha)
    pm.Weibull("y_obs", alpha=alpha, beta=b, observed=y[:200])
    pm.Potential("y_cens", -((y[200:] / b) ** alpha))


@in_gallery
def normal_mixture_by_group(rng):
    """Gelman et al., *Bayesian Data Analysis*, ch. 22: two classes whose share differs between 40 schools."""
    rows, schools = 2000, 40
    school = rng.integers(0, schools, rows)
    share = pm.math.invlogit(pm.Normal("share", 0, pm.HalfNormal("s"), shape=schools))[school]
    mu = pm.Normal(
        "mu",
        [-1.0, 1.0],
        1.0,
        transform=pm.distributions.transforms.ordered,
        initval=[-1.0, 1.0],
    )
    w = pt.stack([1 - share, share], axis=-1)
    y = rng.normal(np.where(rng.random(rows) < 0.4, -1, 1), 0.7)
    pm.NormalMixture("y", w=w, mu=mu, sigma=pm.HalfNormal("sigma", shape=2), observed=y)


@in_gallery
def poisson_mixture_by_group(rng):
    """PyMC, reference of `Mixture`: light and heavy users, classes by segment."""
    rows, segments = 2000, 20
    segment = rng.integers(0, segments, rows)
    w = pm.Dirichlet("w", np.ones(2), shape=(segments, 2))[segment]
    rate = pm.LogNormal("rate", [0.0, 2.0], 0.5, shape=2)
    components = [pm.Poisson.dist(mu=rate[0]), pm.Poisson.dist(mu=rate[1])]
    y = rng.poisson(np.where(rng.random(rows) < 0.7, 1, 7))
    pm.Mixture("y", w=w, comp_dists=components, observed=y)
