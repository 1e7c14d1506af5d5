"""Small models with effects, for all tests of the room."""

import numpy as np
import pymc as pm

RNG = np.random.default_rng(18)
ROWS, GROUPS = 30, 4
GROUP = np.concatenate([np.arange(GROUPS), RNG.integers(0, GROUPS, ROWS - GROUPS)])
ITEM = RNG.integers(0, 3, ROWS)
X = RNG.normal(size=ROWS)
Y = RNG.normal(size=ROWS)
COUNT = RNG.poisson(2.0, ROWS)


def centered() -> pm.Model:
    with pm.Model() as model:
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        a = pm.Normal("a", mu, tau, shape=GROUPS)
        pm.Normal("y", a[GROUP], 0.5, observed=Y)
    return model


def non_centered() -> pm.Model:
    with pm.Model(coords={"g": range(GROUPS)}) as model:
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        raw = pm.Normal("raw", dims="g")
        a = pm.Deterministic("a", mu + raw * tau, dims="g")
        pm.Poisson("y", pm.math.exp(a[pm.Data("group", GROUP)]), observed=COUNT)
    return model


def pair() -> pm.Model:
    """An intercept and a slope, one centered, one not, with scales in one vector."""
    with pm.Model(coords={"g": range(GROUPS)}) as model:
        tau = pm.HalfNormal("tau", shape=2)
        a = pm.Normal("a", 1.0, tau[0], dims="g")
        raw = pm.Normal("raw", dims="g")
        b = pm.Deterministic("b", tau[1] * raw, dims="g")
        pm.Normal("y", a[GROUP] + b[GROUP] * X, 0.5, observed=Y)
    return model


def nested() -> pm.Model:
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", shape=2)
        top = pm.Normal("top", 0, sigma[0], shape=2)
        a = pm.Normal("a", top[[0, 0, 1, 1]], sigma[1], shape=GROUPS)
        pm.Normal("y", a[GROUP], 0.5, observed=Y)
    return model


def nested_raw() -> pm.Model:
    """The same, non-centered at both levels."""
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", shape=2)
        top = 0.5 + sigma[0] * pm.Normal("top_raw", shape=2)
        a = top[np.array([0, 0, 1, 1])] + sigma[1] * pm.Normal("raw", shape=GROUPS)
        pm.Normal("y", a[GROUP], 0.5, observed=Y)
    return model


def crossed() -> pm.Model:
    """Two factors, scaled after their rows are taken."""
    with pm.Model() as model:
        sigma, tau = pm.HalfNormal("sigma"), pm.Exponential("tau", 1)
        group, item = pm.Normal("group", shape=GROUPS), pm.Normal("item", shape=3)
        eta = pm.Normal("mu") + sigma * group[GROUP] + item[ITEM] * tau
        pm.Bernoulli("y", logit_p=eta, observed=Y > 0)
    return model


def crossed_by_three() -> pm.Model:
    """Three factors with an intercept, one of them centered around it; one is subtracted."""
    with pm.Model(
        coords={"of_group": range(GROUPS), "of_item": range(3), "of_sign": range(2)}
    ) as model:
        sigma, mu, beta = pm.HalfNormal("sigma", shape=3), pm.Normal("mu"), pm.Normal("beta")
        group = pm.Normal("group", mu, sigma[0], dims="of_group")
        item = pm.Normal("item", 0, sigma[1], dims="of_item")
        by_sign = pm.Normal("by_sign", dims="of_sign") * sigma[2]
        eta = group[GROUP] - item[ITEM] + by_sign[(X > 0).astype(int)] + beta * X
        pm.Normal("y", eta, 0.5, observed=Y)
    return model


def two_of_one_group() -> pm.Model:
    """Two effects of the same groups, added: the mean of each could be the other."""
    with pm.Model(coords={"g": range(GROUPS)}) as model:
        sigma, tau = pm.HalfNormal("sigma"), pm.HalfNormal("tau")
        one, other = pm.Normal("one", dims="g"), pm.Normal("other", dims="g")
        pm.Normal("y", (sigma * one + tau * other)[GROUP], 0.5, observed=Y)
    return model


def correlated() -> pm.Model:
    """Non-centered intercepts and slopes, a row a group."""
    with pm.Model(coords={"g": range(GROUPS), "effect": ["one", "x"]}) as model:
        sd = pm.Exponential.dist(1.0, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=sd)
        z = pm.Normal("z", dims=("g", "effect"))
        effects = pm.Deterministic("effects", pm.Normal("mean", shape=2) + z @ chol.T)
        pm.Normal("y", effects[GROUP, 0] + effects[GROUP, 1] * X, 0.5, observed=Y)
    return model


def correlated_columns() -> pm.Model:
    """The same, a column a group; the factor is written by hand."""
    with pm.Model() as model:
        sd, mean = pm.HalfNormal("sd", shape=2), pm.Normal("mean", shape=2)
        rho = pm.Uniform("rho", -1, 1)
        one = pm.math.stack([pm.math.stack([1.0, 0.0]), pm.math.stack([rho, (1 - rho**2) ** 0.5])])
        chol = sd[:, None] * one
        effects = (chol @ pm.Normal("z", shape=(2, GROUPS))).T + mean
        pm.Normal("y", effects[GROUP, 0] + effects[GROUP, 1] * X, 0.5, observed=Y)
    return model


def correlated_centered() -> pm.Model:
    """The same, with the effects as a variable."""
    with pm.Model(coords={"g": range(GROUPS), "effect": ["one", "x"]}) as model:
        sd = pm.Exponential.dist(1.0, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=sd)
        mean = pm.Normal("mean", shape=2)
        effects = pm.MvNormal("effects", mean, chol=chol, dims=("g", "effect"))
        pm.Normal("y", effects[GROUP, 0] + effects[GROUP, 1] * X, 0.5, observed=Y)
    return model


def correlated_by_any_matrix() -> pm.Model:
    """Effects as a variable whose covariance is a product of a matrix that is no triangle."""
    with pm.Model(coords={"g": range(GROUPS), "effect": ["one", "x"]}) as model:
        matrix = pm.Normal("matrix", np.eye(2), shape=(2, 2))
        mean = pm.Normal("mean", shape=2)
        effects = pm.MvNormal("effects", mean, cov=matrix @ matrix.T, dims=("g", "effect"))
        pm.Normal("y", effects[GROUP, 0] + effects[GROUP, 1] * X, 0.5, observed=Y)
    return model


def multiplied_by_each_other() -> pm.Model:
    """Two standard normal vectors, each of which could be the scale of the other."""
    with pm.Model() as model:
        one, other = pm.Normal("one", shape=GROUPS), pm.Normal("other", shape=GROUPS)
        scale = pm.HalfNormal("scale")
        pm.Normal("y", (one * other * scale)[GROUP], 0.5, observed=Y)
    return model


def matrices_that_multiply_each_other() -> pm.Model:
    with pm.Model() as model:
        one, other = pm.Normal("one", shape=(2, 2)), pm.Normal("other", shape=(2, 2))
        effects = one @ other
        pm.Normal("y", effects[GROUP % 2, 0] + effects[GROUP % 2, 1] * X, 0.5, observed=Y)
    return model


def with_coefficients() -> pm.Model:
    """Effects beside a common intercept and coefficients."""
    with pm.Model() as model:
        tau, beta = pm.HalfNormal("tau"), pm.Normal("beta", 0, 2, shape=2)
        raw = pm.Normal("raw", shape=GROUPS)
        eta = pm.Normal("one") + (tau * raw)[GROUP] + beta[0] * X + beta[1] * X**2
        pm.Bernoulli("y", logit_p=eta, observed=Y > 0)
    return model


def zero_sum() -> pm.Model:
    """Effects that sum to zero, of a scale that is a variable."""
    with pm.Model(coords={"g": range(GROUPS)}) as model:
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        a = pm.ZeroSumNormal("a", tau, dims="g")
        pm.Normal("y", mu + a[GROUP], 0.5, observed=Y)
    return model


def zero_sum_raw() -> pm.Model:
    """An intercept and a slope that sum to zero, scaled afterwards."""
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", shape=2)
        raw = pm.ZeroSumNormal("raw", shape=GROUPS)
        slope = pm.ZeroSumNormal("slope", shape=GROUPS)
        eta = pm.Normal("mu") + tau[0] * raw[GROUP] + (tau[1] * slope)[GROUP] * X
        pm.Poisson("y", pm.math.exp(eta), observed=COUNT)
    return model


CORRELATED = [correlated, correlated_columns, correlated_centered]
ALL = [
    crossed_by_three,
    *CORRELATED,
    correlated_by_any_matrix,
    multiplied_by_each_other,
    matrices_that_multiply_each_other,
    with_coefficients,
    centered,
    non_centered,
    pair,
    nested,
    nested_raw,
    crossed,
    two_of_one_group,
    zero_sum,
    zero_sum_raw,
]
