"""The PyMC port of *Statistical Rethinking*, which the documentation recommends."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.gallery.registry import in_gallery


@in_gallery
def rethinking_trolley(rng):
    """McElreath, *Statistical Rethinking*, ch. 12, m12.5."""
    a, i, c = rng.integers(0, 2, size=(3, 9930))
    b = pm.Normal("b", 0.0, 0.5, shape=5)
    phi = a * b[0] + c * b[1] + i * (b[2] + b[3] * a + b[4] * c)
    cuts = pm.Normal(
        "cutpoints",
        0.0,
        1.5,
        shape=6,
        transform=pm.distributions.transforms.ordered,
        initval=np.arange(6) - 2.5,
    )
    pm.OrderedLogistic("R", cutpoints=cuts, eta=phi, observed=rng.integers(0, 7, 9930))


@in_gallery
def rethinking_monks(rng):
    """McElreath, *Statistical Rethinking*, ch. 12, m12.3."""
    p, lam = pm.math.invlogit(pm.Normal("ap", -1.5, 1.0)), pt.exp(pm.Normal("al", 1.0, 0.5))
    pm.ZeroInflatedPoisson(
        "y", 1.0 - p, lam, observed=rng.poisson(1, 365) * rng.integers(0, 2, 365)
    )


@in_gallery
def rethinking_chimpanzees(rng):
    """McElreath, *Statistical Rethinking*, ch. 14, m14.3."""
    actor, block, tid = (rng.integers(0, n, 504) for n in (7, 6, 4))
    eta = pm.Normal("g", 0, 1, shape=4)[tid]
    for name, size, index in (("actor", 7, actor), ("block", 6, block)):
        sd = pm.Exponential.dist(1.0)
        chol, _, _ = pm.LKJCholeskyCov(f"chol_{name}", n=4, eta=2, sd_dist=sd)
        z = pm.Normal(f"z_{name}", 0.0, 1.0, shape=(4, size))
        eta = eta + pt.dot(chol, z).T[index, tid]
    pm.Binomial("L", 1, pm.math.invlogit(eta), observed=rng.integers(0, 2, 504))


@in_gallery
def rethinking_cafes(rng):
    """McElreath, *Statistical Rethinking*, ch. 14, m14.1."""
    cafe, afternoon = np.repeat(np.arange(20), 10), np.tile([0, 1], 100)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1.0))
    ab = pm.MvNormal("ab", mu=pm.Normal("mu", 0, 2, shape=2), chol=chol, shape=(20, 2))
    mu = ab[:, 0][cafe] + ab[:, 1][cafe] * afternoon
    pm.Normal("wait", mu, sigma=pm.Exponential("sigma", 1.0), observed=rng.normal(3, 1, 200))


@in_gallery
def rethinking_islands(rng):
    """McElreath, *Statistical Rethinking*, ch. 14, m14.8."""
    distance = np.abs(np.subtract.outer(np.arange(10.0), np.arange(10.0)))
    etasq, rhosq = pm.Exponential("etasq", 2.0), pm.Exponential("rhosq", 0.5)
    cov = etasq * pt.exp(-rhosq * distance**2) + np.diag([0.01] * 10)
    k = pm.MvNormal("k", np.zeros(10), cov=cov)
    lam = (
        pm.Exponential("a", 1) * np.arange(1, 11) ** pm.Exponential("b", 1) / pm.Exponential("g", 1)
    )
    pm.Poisson("T", lam * pt.exp(k), observed=rng.poisson(30, 10))


@in_gallery
def rethinking_primates(rng):
    """McElreath, *Statistical Rethinking*, ch. 14, m14.10."""
    X = rng.normal(size=(151, 3))
    ages = np.abs(np.subtract.outer(np.arange(151.0), np.arange(151.0)))
    related = np.exp(-ages / 20)
    mu = pm.Normal("a") + pm.Normal("bM", 0, 0.5) * X[:, 0] + pm.Normal("bG", 0, 0.5) * X[:, 1]
    cov = related * pm.Exponential("sigma_sq", 1.0)
    pm.MvNormal("B", mu, cov=cov, observed=X[:, 2])
