"""Likelihoods made of other distributions, or of several axes: censored, truncated, mixed, written by the user, panels, tables."""

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from tests.fuzz.draw import POSITIVE, REAL, UNIT, Draw

# A distribution without a name, of a predictor, and whether its values are positive or counts.
Base = Callable[[Draw, TensorVariable], TensorVariable]
REAL_BASES: dict[str, Base] = {
    "of normal": lambda draw, eta: pm.Normal.dist(eta, draw.prior(POSITIVE)),
    "of Laplace": lambda draw, eta: pm.Laplace.dist(eta, draw.prior(POSITIVE)),
    "of logistic": lambda draw, eta: pm.Logistic.dist(eta, draw.prior(POSITIVE)),
    "of Cauchy": lambda draw, eta: pm.Cauchy.dist(eta, draw.prior(POSITIVE)),
    "of Gumbel": lambda draw, eta: pm.Gumbel.dist(eta, draw.prior(POSITIVE)),
}
POSITIVE_BASES: dict[str, Base] = {
    "of exponential": lambda draw, eta: pm.Exponential.dist(rate(eta)),
    "of Weibull": lambda draw, eta: pm.Weibull.dist(draw.prior(POSITIVE), rate(eta)),
    "of lognormal": lambda draw, eta: pm.LogNormal.dist(eta, draw.prior(POSITIVE)),
    "of gamma": lambda draw, eta: pm.Gamma.dist(alpha=2.0, beta=rate(eta)),
}
COUNT_BASES: dict[str, Base] = {
    "of Poisson": lambda draw, eta: pm.Poisson.dist(rate(eta)),
    "of geometric": lambda draw, eta: pm.Geometric.dist(pt.sigmoid(eta)),
}
# Components of mixtures of one support.
REAL_PARTS: dict[str, Base] = REAL_BASES | {
    "of Student": lambda draw, eta: pm.StudentT.dist(4, mu=eta, sigma=draw.prior(POSITIVE)),
}
COUNT_PARTS: dict[str, Base] = {
    "of Poisson": COUNT_BASES["of Poisson"],
    "of negative binomial": lambda draw, eta: pm.NegativeBinomial.dist(
        mu=rate(eta), alpha=draw.prior(POSITIVE)
    ),
    "of zero-inflated Poisson": lambda draw, eta: pm.ZeroInflatedPoisson.dist(
        draw.prior(UNIT), rate(eta)
    ),
}


def rate(eta: TensorVariable) -> TensorVariable:
    """Return a positive number a row, whose logarithm is the predictor in most of its range."""
    return pt.exp(pt.clip(eta, -20, 20))


def _some_data(draw: Draw, table: dict[str, Base]) -> np.ndarray:
    if table is COUNT_PARTS:
        return draw.rng.poisson(3.0, size=draw.n)
    if table is COUNT_BASES:  # what is geometric is at least 1
        return draw.rng.poisson(3.0, size=draw.n) + 1
    if table is POSITIVE_BASES:
        return draw.rng.gamma(2.0, 1.0, size=draw.n) + 0.1
    return draw.rng.normal(0.5, 2.0, size=draw.n)


def _base(draw: Draw, *tables: dict[str, Base]) -> tuple[dict[str, Base], Base]:
    table = draw.choice(tables)
    return table, draw.pick(table)


def censored(draw: Draw, name: str, eta: TensorVariable) -> None:
    table, base = _base(draw, REAL_BASES, POSITIVE_BASES)
    y = _some_data(draw, table)
    lower, upper = (float(np.quantile(y, q)) for q in (0.2, 0.8))
    lower, upper = draw.choice([(lower, None), (None, upper), (lower, upper)])
    pm.Censored(
        name,
        base(draw, eta),
        lower=lower,
        upper=upper,
        observed=np.clip(
            y, -np.inf if lower is None else lower, np.inf if upper is None else upper
        ),
    )


def truncated(draw: Draw, name: str, eta: TensorVariable) -> None:
    table, base = _base(draw, REAL_BASES, POSITIVE_BASES, COUNT_BASES)
    y = _some_data(draw, table)
    lower, upper = draw.choice([(0, None), (None, 60), (0, 60)])
    y = np.clip(y, 0.1, 59.0) if table is not COUNT_BASES else np.clip(y, 1, 59)
    pm.Truncated(name, base(draw, eta), lower=lower, upper=upper, observed=y)


def mixture(draw: Draw, name: str, eta: TensorVariable) -> None:
    """Two or three components of one family, or of several."""
    table = draw.choice([REAL_PARTS, POSITIVE_BASES, COUNT_PARTS])
    n = int(draw.choice([2, 2, 3]))
    weights = pm.Dirichlet(f"{name}_w", np.ones(n))
    parts = [draw.pick(table)(draw, eta + draw.prior(REAL)) for _ in range(n)]
    pm.Mixture(name, weights, parts, observed=_some_data(draw, table))


def batched_mixture(draw: Draw, name: str, eta: TensorVariable) -> None:
    """Components that are an axis of one distribution."""
    weights = pm.Dirichlet(f"{name}_w", np.ones(3))
    means = eta[:, None] + draw.prior(REAL, (3,))
    if draw.chance(0.5):
        parts = pm.Normal.dist(means, draw.prior(POSITIVE, (3,)))
        pm.Mixture(name, weights, parts, observed=draw.rng.normal(size=draw.n))
        return
    pm.Mixture(name, weights, pm.Poisson.dist(rate(means)), observed=draw.rng.poisson(3, draw.n))


def by_logp(draw: Draw, name: str, eta: TensorVariable) -> None:
    """A density that a user wrote."""

    def logp(value, mu, sigma):
        z = (value - mu) / sigma
        return pt.switch(pt.gt(sigma, 0), -pt.log(sigma) - pt.log1p(pt.sqr(z)), -np.inf)

    y = draw.rng.normal(size=draw.n)
    pm.CustomDist(name, eta, draw.prior(POSITIVE), logp=logp, observed=y)


def by_dist(draw: Draw, name: str, eta: TensorVariable) -> None:
    """A density that PyMC derives from how a user draws."""

    def dist(mu, sigma, size):
        normal = pm.Normal.dist(mu, sigma, size=size)
        return draw_of(normal)

    draw_of = draw.choice([pt.exp, lambda x: 2.0 * x + 1.0, lambda x: pt.exp(0.5 * x)])
    y = draw.rng.gamma(2.0, 1.0, size=draw.n) + 0.1
    pm.CustomDist(name, eta, draw.prior(POSITIVE), dist=dist, observed=y)


def panel(draw: Draw, name: str, eta: TensorVariable) -> None:
    """Observations of two or three axes, with dims."""
    model = pm.modelcontext(None)
    lengths = (draw.n, *draw.choice([(1,), (3,), (4,), (2, 3), (1, 2)]))
    dims = tuple(f"{name}_axis{k}" for k in range(len(lengths)))
    model.add_coords({dim: np.arange(n) for dim, n in zip(dims, lengths, strict=True)})
    effect = pm.Normal(draw.name("e"), 0, draw.prior(POSITIVE), dims=dims[1:])
    mu = eta.reshape((draw.n, *[1] * (len(lengths) - 1))) + effect
    match draw.pick({"2-D normal": 0, "2-D Poisson": 1, "2-D Bernoulli": 2, "2-D missing": 3}):
        case 0:
            y = draw.rng.normal(size=lengths)
            pm.Normal(name, mu, draw.prior(POSITIVE), observed=y, dims=dims)
        case 1:
            pm.Poisson(name, rate(mu), observed=draw.rng.poisson(3, lengths), dims=dims)
        case 2:
            y = draw.rng.random(lengths) < 0.4
            pm.Bernoulli(name, logit_p=mu, observed=y, dims=dims)
        case 3:
            y = np.ma.masked_array(draw.rng.normal(size=lengths), draw.rng.random(lengths) < 0.2)
            pm.Normal(name, mu, draw.prior(POSITIVE), observed=y, dims=dims)


def correlated_rows(draw: Draw, name: str, eta: TensorVariable) -> None:
    """Rows of a multivariate normal with an LKJ prior."""
    n = int(draw.choice([2, 3, 5]))
    chol, _, _ = pm.LKJCholeskyCov(
        f"{name}_chol", n=n, eta=2, sd_dist=pm.Exponential.dist(1.0), compute_corr=True
    )
    y = draw.rng.normal(size=(draw.n, n))
    pm.MvNormal(name, mu=eta[:, None] + np.zeros(n), chol=chol, observed=y)


def rows_of_student(draw: Draw, name: str, eta: TensorVariable) -> None:
    """Rows of a multivariate Student's t of a known covariance."""
    cov = np.eye(3) + 0.4
    y = draw.rng.normal(size=(draw.n, 3))
    mu = eta[:, None] + draw.prior(REAL, (3,))
    pm.MvStudentT(name, nu=draw.prior(POSITIVE) + 2, mu=mu, scale=cov, observed=y)


def series(draw: Draw, name: str, eta: TensorVariable) -> None:
    """A latent walk below the predictor, or an autoregression of what is observed."""
    if draw.chance(0.5):
        start = pm.Normal.dist(0, 1)
        walk = pm.GaussianRandomWalk(
            draw.name("w"), sigma=draw.prior(POSITIVE), init_dist=start, shape=draw.n + 1
        )
        pm.Poisson(name, rate(eta + walk[1:]), observed=draw.rng.poisson(3, draw.n))
        return
    y = draw.rng.normal(size=draw.n + 3)
    rho = draw.prior(REAL, (3,))
    first = pm.Normal.dist(0, 2, shape=(2,))
    pm.AR(name, rho, draw.prior(POSITIVE), init_dist=first, constant=True, observed=y)


def shares(draw: Draw, name: str, eta: TensorVariable) -> None:
    """Counts of several kinds, with and without more spread than a multinomial has."""
    logits = pt.stack([eta, 0.5 * eta + draw.prior(REAL), pt.zeros_like(eta)], axis=1)
    y = draw.rng.multinomial(int(draw.choice([1, 9, 1000])), [0.2, 0.5, 0.3], size=draw.n)
    if draw.chance(0.5):
        pm.Multinomial(name, n=y.sum(axis=1), p=pm.math.softmax(logits, axis=1), observed=y)
        return
    pm.DirichletMultinomial(name, n=y.sum(axis=1), a=rate(logits), observed=y)


COMPOSITIONS = {
    "censored": censored,
    "truncated": truncated,
    "mixture": mixture,
    "batched mixture": batched_mixture,
    "by logp": by_logp,
    "by dist": by_dist,
    "panel": panel,
    "correlated rows": correlated_rows,
    "rows of Student": rows_of_student,
    "series": series,
    "shares": shares,
}
