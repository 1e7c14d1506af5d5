"""Models with effects as users write them; each model has a feature that could prevent a reparametrization."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

RNG = np.random.default_rng(4)
ROWS, GROUPS = 240, 12
GROUP = np.concatenate([np.arange(GROUPS), RNG.integers(0, GROUPS, ROWS - GROUPS)])
X = RNG.normal(1.0, 1.0, ROWS)
EFFECT = RNG.normal(0.0, 0.7, GROUPS)
ETA = 0.5 + EFFECT[GROUP] + 0.3 * X
Y = RNG.normal(ETA, 0.5)
COUNT = RNG.poisson(np.exp(ETA))
BINARY = RNG.random(ROWS) < 1 / (1 + np.exp(-ETA))
TIME = RNG.weibull(1.5, ROWS) * np.exp(ETA)
CLASS = RNG.integers(0, 3, ROWS)
SERIES = 0.3 * RNG.normal(size=(GROUPS, 20)).cumsum(1)
COLUMNS = RNG.normal(size=(ROWS, 10))
OF_GROUPS = RNG.normal(size=(GROUPS, 2))
SHARES = RNG.multinomial(30, [0.5, 0.3, 0.2], size=GROUPS)
# Of groups, the larger ones that they are in.
DISTRICT, COUNTRY = np.arange(GROUPS) // 3, np.arange(4) // 2


def _intercepts() -> pt.TensorVariable:
    """Return effects of groups, non-centered."""
    mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
    return mu + tau * pm.Normal("raw", shape=GROUPS)


def three_levels() -> pm.Model:
    """Groups in districts in countries, centered."""
    with pm.Model(coords={"c": range(2), "d": range(4), "g": range(GROUPS)}) as model:
        mu, sigma = pm.Normal("mu"), pm.HalfNormal("sigma", shape=3)
        country = pm.Normal("country", mu, sigma[0], dims="c")
        district = pm.Normal("district", country[COUNTRY], sigma[1], dims="d")
        a = pm.Normal("a", district[DISTRICT], sigma[2], dims="g")
        pm.Normal("y", a[GROUP], 0.5, observed=Y)
    return model


def three_levels_raw() -> pm.Model:
    """The same, non-centered, added up by the row."""
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", shape=3)
        country, district, a = (
            sigma[i] * pm.Normal(f"raw_{i}", shape=n) for i, n in enumerate((2, 4, GROUPS))
        )
        by_district = DISTRICT[GROUP]
        eta = pm.Normal("mu") + country[COUNTRY[by_district]] + district[by_district] + a[GROUP]
        pm.Bernoulli("y", logit_p=eta, observed=BINARY)
    return model


def spatial() -> pm.Model:
    """BYM2: effects of neighbors and of each on its own, of one scale."""
    neighbors = np.eye(GROUPS, k=1) + np.eye(GROUPS, k=-1)
    with pm.Model() as model:
        sigma, rho = pm.HalfNormal("sigma"), pm.Beta("rho", 1, 1)
        phi, theta = pm.ICAR("phi", W=neighbors), pm.Normal("theta", shape=GROUPS)
        a = sigma * (pt.sqrt(rho) * phi + pt.sqrt(1 - rho) * theta)
        pm.Poisson("y", pt.exp(pm.Normal("mu") + a[GROUP]), observed=COUNT)
    return model


def car() -> pm.Model:
    """Effects of neighbors with a scale of their own."""
    neighbors = np.eye(GROUPS, k=1) + np.eye(GROUPS, k=-1)
    with pm.Model() as model:
        tau = pm.Gamma("tau", 2, 1)
        a = pm.CAR("a", pm.Normal("mu") * np.ones(GROUPS), neighbors, alpha=0.9, tau=tau)
        pm.Normal("y", a[GROUP], 0.5, observed=Y)
    return model


def random_walk() -> pm.Model:
    """A level that moves in time, by innovations with a scale."""
    with pm.Model() as model:
        step = pm.HalfNormal("step") * pm.Normal("raw", shape=GROUPS)
        level = pm.Deterministic("level", pm.Normal("start") + pt.cumsum(step))
        pm.Normal("y", level[GROUP], 0.5, observed=Y)
    return model


def random_walk_of_pymc() -> pm.Model:
    """The same by GaussianRandomWalk, a walk a class."""
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma")
        start = pm.Normal.dist(0, 1, shape=3)
        level = pm.GaussianRandomWalk("level", sigma=sigma, init_dist=start, shape=(3, GROUPS))
        pm.Normal("y", level[CLASS, GROUP], 0.5, observed=Y)
    return model


def several_likelihoods() -> pm.Model:
    """Effects that measurements, counts and a Potential share."""
    with pm.Model() as model:
        a, alpha = _intercepts(), pm.Normal("alpha")
        pm.Normal("y", a[GROUP], 0.5, observed=Y)
        pm.Poisson("count", pt.exp(alpha * a[GROUP]), observed=COUNT)
        pm.Potential("soft", -0.5 * pt.sqr(a.sum()))
    return model


def effects_in_scales() -> pm.Model:
    """Groups have intercepts and scales, both hierarchical."""
    with pm.Model(coords={"g": range(GROUPS)}) as model:
        a = pm.Normal("a", pm.Normal("mu"), pm.HalfNormal("tau"), dims="g")
        log_scale = pm.Normal("log_scale", pm.Normal("mu_s"), pm.HalfNormal("tau_s"), dims="g")
        pm.Normal("y", a[GROUP], pt.exp(log_scale)[GROUP], observed=Y)
    return model


def autoregressive() -> pm.Model:
    """A coefficient of persistence and a level for each group."""
    with pm.Model(coords={"g": range(GROUPS)}) as model:
        rho = pm.Normal("rho", pm.Normal("mu_r", 0.5, 0.3), pm.HalfNormal("tau_r", 0.3), dims="g")
        a = pm.HalfNormal("tau") * pm.Normal("raw", dims="g")
        expected = a[:, None] + rho[:, None] * SERIES[:, :-1]
        pm.Normal("y", expected, pm.HalfNormal("sigma"), observed=SERIES[:, 1:])
    return model


def autoregressive_of_pymc() -> pm.Model:
    """The same by AR."""
    with pm.Model(coords={"g": range(GROUPS)}) as model:
        rho = pm.Normal("rho", pm.Normal("mu_r", 0.5, 0.3), pm.HalfNormal("tau_r", 0.3), dims="g")
        start = pm.Normal.dist(0, 1, shape=(GROUPS, 1))
        sigma = pm.HalfNormal("sigma")
        pm.AR("y", rho[:, None], sigma, init_dist=start, steps=19, observed=SERIES)
    return model


def one_group() -> pm.Model:
    """A dim with one group, beside one with many."""
    with pm.Model(coords={"all": ["all"], "g": range(GROUPS)}) as model:
        one = pm.Normal("one", pm.Normal("mu"), pm.HalfNormal("tau_one"), dims="all")
        a = pm.HalfNormal("tau") * pm.Normal("raw", dims="g")
        pm.Normal("y", one[np.zeros(ROWS, int)] + a[GROUP], 0.5, observed=Y)
    return model


def groups_without_rows() -> pm.Model:
    """Half of the groups have no data."""
    with pm.Model(coords={"g": range(2 * GROUPS)}) as model:
        a = pm.Normal("a", pm.Normal("mu"), pm.HalfNormal("tau"), dims="g")
        pm.Normal("y", a[2 * GROUP], 0.5, observed=Y)
    return model


def hurdle() -> pm.Model:
    """Return whether there is a count, and how large it is then, each with effects."""
    with pm.Model() as model:
        present = pm.HalfNormal("tau_p") * pm.Normal("raw_p", shape=GROUPS)
        size = pm.Normal("mu") + pm.HalfNormal("tau") * pm.Normal("raw", shape=GROUPS)
        psi = pm.math.invlogit(pm.Normal("mu_p") + present[GROUP])
        pm.HurdlePoisson("y", psi=psi, mu=pt.exp(size[GROUP]), observed=COUNT)
    return model


def zero_inflated() -> pm.Model:
    with pm.Model() as model:
        psi, a, alpha = pm.Beta("psi", 2, 1), _intercepts(), pm.Gamma("alpha", 2, 0.5)
        pm.ZeroInflatedNegativeBinomial(
            "y", psi=psi, mu=pt.exp(a[GROUP]), alpha=alpha, observed=COUNT
        )
    return model


def ordered() -> pm.Model:
    """Cutpoints that are ordered, and others that differ by group."""
    with pm.Model() as model:
        ordered_ = pm.distributions.transforms.ordered
        common = pm.Normal("common", 0, 2, shape=2, transform=ordered_, initval=[-1.0, 1.0])
        shift = pm.Normal("shift", 0, pm.HalfNormal("tau"), shape=GROUPS)
        pm.OrderedLogistic(
            "y",
            eta=pm.Normal("b") * X,
            cutpoints=common + shift[GROUP][:, None],
            compute_p=False,
            observed=CLASS,
        )
    return model


def ordered_effects() -> pm.Model:
    """Effects that are ordered in each group."""
    with pm.Model() as model:
        a = pm.Normal(
            "a",
            pm.Normal("mu", shape=2),
            pm.HalfNormal("tau"),
            shape=(GROUPS, 2),
            transform=pm.distributions.transforms.ordered,
            initval=np.tile([-1.0, 1.0], (GROUPS, 1)),
        )
        pm.Normal("y", a[GROUP, BINARY.astype(int)], 0.5, observed=Y)
    return model


def by_class() -> pm.Model:
    """Effects of groups on each class but the first, a scale a class."""
    with pm.Model(coords={"g": range(GROUPS), "class": ["b", "c"]}) as model:
        tau, mu = pm.HalfNormal("tau", dims="class"), pm.Normal("mu", dims="class")
        a = pm.Deterministic(
            "a", mu + tau * pm.Normal("raw", dims=("g", "class")), dims=("g", "class")
        )
        eta = pt.concatenate([pt.zeros((ROWS, 1)), a[GROUP]], axis=1)
        pm.Categorical("y", logit_p=eta, observed=CLASS)
    return model


def imputed() -> pm.Model:
    """A covariate with gaps, whose mean is an effect of the group."""
    with_gaps = np.ma.masked_where(np.arange(ROWS) % 9 == 0, X)
    with pm.Model() as model:
        level = pm.Normal("level", pm.Normal("mu_x"), pm.HalfNormal("tau_x"), shape=GROUPS)
        x = pm.Normal("x", level[GROUP], pm.HalfNormal("sigma_x"), observed=with_gaps)
        pm.Normal("y", _intercepts()[GROUP] + pm.Normal("b") * x, 0.5, observed=Y)
    return model


def lkj_corr() -> pm.Model:
    """Correlated effects with a covariance of their correlations and scales."""
    with pm.Model(coords={"g": range(GROUPS), "effect": ["one", "x"]}) as model:
        sd, corr = pm.HalfNormal("sd", dims="effect"), pm.LKJCorr("corr", n=2, eta=2)
        cov = sd[:, None] * corr * sd[None, :]
        b = pm.MvNormal("b", pm.Normal("mu", dims="effect"), cov=cov, dims=("g", "effect"))
        pm.Normal("y", b[GROUP, 0] + b[GROUP, 1] * X, 0.5, observed=Y)
    return model


def lkj_by_row() -> pm.Model:
    """Correlated effects that are scaled before they are correlated."""
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1, shape=2))
        z = pm.Normal("z", shape=(GROUPS, 2))
        effects = pt.einsum("ij,gj->gi", chol, z)
        pm.Normal("y", effects[GROUP, 0] + effects[GROUP, 1] * X, 0.5, observed=Y)
    return model


def with_heavy_tails() -> pm.Model:
    """Effects with Student's t as prior, and some that are Laplace."""
    with pm.Model() as model:
        nu, mu, tau = pm.Gamma("nu", 2, 0.1), pm.Normal("mu"), pm.HalfNormal("tau")
        a = pm.StudentT("a", nu, mu=mu, sigma=tau, shape=GROUPS)
        b = pm.HalfNormal("tau_b") * pm.Laplace("b", 0, 1, shape=GROUPS)
        pm.Normal("y", a[GROUP] + b[GROUP] * X, 0.5, observed=Y)
    return model


def scale_mixture() -> pm.Model:
    """Student's t as a Normal whose scale each group has of its own."""
    with pm.Model() as model:
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        own = pm.InverseGamma("own", 2, 2, shape=GROUPS)
        a = mu + tau * pt.sqrt(own) * pm.Normal("raw", shape=GROUPS)
        pm.Normal("y", a[GROUP], 0.5, observed=Y)
    return model


def horseshoe() -> pm.Model:
    with pm.Model() as model:
        tau, local = pm.HalfNormal("tau", 0.3), pm.HalfCauchy("local", 1, shape=10)
        beta = pm.Deterministic("beta", pm.Normal("raw", shape=10) * local * tau)
        pm.Normal("y", pm.Normal("mu") + COLUMNS @ beta, 0.5, observed=Y)
    return model


def ridge() -> pm.Model:
    """Coefficients of a regression with a scale that is random, centered, on columns that are correlated."""
    columns = COLUMNS + X[:, None]
    with pm.Model(coords={"column": range(10)}) as model:
        beta = pm.Normal("beta", 0, pm.HalfNormal("tau"), dims="column")
        pm.Normal("y", pm.Normal("mu") + columns @ beta, pm.HalfNormal("sigma"), observed=Y)
    return model


def done() -> pm.Model:
    """A model of which one variable was set to a number."""
    with pm.Model() as model:
        b = pm.Normal("b")
        pm.Poisson("y", pt.exp(_intercepts()[GROUP] + b * X), observed=COUNT)
    return pm.do(model, {"b": 0.3})


def observed_later() -> pm.Model:
    """A generative model that was given its data, and a scale."""
    with pm.Model(coords={"g": range(GROUPS)}) as model:
        tau = pm.HalfNormal("tau")
        a = pm.Normal("a", pm.Normal("mu"), tau, dims="g")
        pm.Normal("y", a[GROUP], pm.HalfNormal("sigma"), shape=ROWS)
    return pm.observe(model, {"y": Y, "tau": 0.7})


def with_data() -> pm.Model:
    """Rows, groups and lengths of dims that may change."""
    with pm.Model(coords={"g": range(GROUPS)}) as model:
        model.add_coord("row", range(ROWS))
        group, x = pm.Data("group", GROUP, dims="row"), pm.Data("x", X, dims="row")
        a = pm.Normal("a", pm.Normal("mu"), pm.HalfNormal("tau"), dims="g")
        mu = pm.Deterministic("eta", a[group] + pm.Normal("b") * x, dims="row")
        pm.Normal("y", mu, 0.5, observed=pm.Data("seen", Y, dims="row"), dims="row")
    return model


def custom() -> pm.Model:
    """A likelihood by hand, and effects whose prior is a function."""

    def logp(value, mu):
        return -pt.log(pt.cosh(value - mu))

    def random(mu, rng=None, size=None):
        return rng.logistic(mu, 0.5, size=size)

    def effects(mu, tau, size):
        return pm.Normal.dist(mu, tau, size=size)

    with pm.Model() as model:
        a = _intercepts()
        b = pm.CustomDist("b", 0.0, pm.HalfNormal("tau_b"), dist=effects, shape=GROUPS)
        pm.CustomDist("y", a[GROUP] + b[GROUP] * X, logp=logp, random=random, observed=Y)
    return model


def by_potential() -> pm.Model:
    """No observed variable, but a Potential."""
    with pm.Model() as model:
        a = _intercepts()
        pm.Potential("y", pm.logp(pm.Normal.dist(a[GROUP], 0.5), Y).sum())
    return model


def censored() -> pm.Model:
    """Lifetimes by group, of which some had not ended."""
    end = np.full(ROWS, 3.0)
    with pm.Model() as model:
        lifetime = pm.Weibull.dist(pm.Gamma("shape", 2, 1), pt.exp(_intercepts()[GROUP]))
        pm.Censored("y", lifetime, lower=None, upper=end, observed=np.minimum(TIME, end))
    return model


def frailty() -> pm.Model:
    """Factors of a hazard that are Gamma, and one that is the exponential of an effect."""
    with pm.Model() as model:
        theta, tau = pm.Gamma("theta", 4, 2), pm.HalfNormal("tau")
        factor = pm.Gamma("factor", theta, theta, shape=GROUPS)
        a = pm.LogNormal("a", 0, tau, shape=4)
        hazard = factor[GROUP] * a[DISTRICT[GROUP]] * pt.exp(pm.Normal("b") * X)
        pm.Exponential("y", hazard, observed=TIME)
    return model


def truncated() -> pm.Model:
    """Effects that are truncated, and effects of their exponential."""
    with pm.Model() as model:
        a = pm.TruncatedNormal("a", pm.Normal("mu"), pm.HalfNormal("tau"), lower=-2.0, shape=GROUPS)
        b = pt.exp(pm.HalfNormal("tau_b") * pm.Normal("raw", shape=GROUPS))
        pm.Normal("y", a[GROUP] + b[GROUP] * X, 0.5, observed=Y)
    return model


def mixture() -> pm.Model:
    """Two components, of which one has effects."""
    with pm.Model() as model:
        w, a = pm.Dirichlet("w", np.ones(2)), _intercepts()
        parts = [pm.Normal.dist(a[GROUP], 0.5), pm.StudentT.dist(3, mu=0.0, sigma=3.0, shape=ROWS)]
        pm.Mixture("y", w=w, comp_dists=parts, observed=Y)
    return model


def reference_level() -> pm.Model:
    """The first group is zero, and the last one is minus the sum of the others."""
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", shape=2)
        a = pt.concatenate([[0.0], tau[0] * pm.Normal("raw", shape=GROUPS - 1)])
        b = pm.Normal("b", 0, tau[1], shape=GROUPS - 1)
        b = pt.concatenate([b, -b.sum(keepdims=True)])
        pm.Normal("y", pm.Normal("mu") + a[GROUP] + b[GROUP] * X, 0.5, observed=Y)
    return model


def group_by_time() -> pm.Model:
    """Effects of groups in each of five periods, around those of the group, with a scale for each period."""
    period = np.arange(ROWS) % 5
    with pm.Model(coords={"g": range(GROUPS), "period": range(5)}) as model:
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        a = pm.Normal("a", mu, tau, dims="g")
        scale = pm.HalfNormal("scale", dims="period")
        b = pm.Normal("b", a[:, None], scale[None, :], dims=("g", "period"))
        p = pm.math.invlogit(b[GROUP, period])
        pm.Binomial("y", n=10, p=p, observed=np.minimum(COUNT, 10))
    return model


def measured_with_error() -> pm.Model:
    """Measurement error: one effect a row."""
    with pm.Model() as model:
        truth = pm.Normal("truth", pm.Normal("mu"), pm.HalfNormal("tau"), shape=ROWS)
        pm.Normal("seen", truth, 0.3, observed=X)
        pm.Normal("y", pm.Normal("b") * truth, pm.HalfNormal("sigma"), observed=Y)
    return model


def group_predictors() -> pm.Model:
    """Means of effects are a regression on what is known of the groups."""
    with pm.Model() as model:
        mean = pm.Normal("mu") + pt.dot(OF_GROUPS, pm.Normal("gamma", shape=2))
        a = pm.Normal("a", mean, pm.Exponential("tau", 1), shape=GROUPS)
        pm.StudentT("y", 4, mu=a[GROUP] + pm.Normal("b") * X, sigma=0.5, observed=Y)
    return model


def scales_of_groups() -> pm.Model:
    """Effects of districts are the scales of effects of groups."""
    with pm.Model() as model:
        mu_s, tau_s = pm.Normal("mu_s"), pm.HalfNormal("tau_s")
        log_scale = mu_s + tau_s * pm.Normal("raw_s", shape=4)
        a = pm.Normal("a", 0, pt.exp(log_scale[DISTRICT]), shape=GROUPS)
        pm.Normal("y", a[GROUP], 0.5, observed=Y)
    return model


def products() -> pm.Model:
    """Effects that multiply each other, and their squares."""
    with pm.Model() as model:
        a, b = _intercepts(), pm.Normal("b", 1, pm.HalfNormal("tau_b"), shape=GROUPS)
        pm.Normal("y", (a * b)[GROUP] + 0.1 * pt.sqr(b)[GROUP] * X, 0.5, observed=Y)
    return model


def growth() -> pm.Model:
    """Curves with a ceiling, a rate and a start for each group."""
    with pm.Model(coords={"g": range(GROUPS)}) as model:
        ceiling = pm.Normal("ceiling", pm.Normal("c", 3, 1), pm.HalfNormal("sc"), dims="g")
        rate = pt.exp(pm.Normal("r") + pm.HalfNormal("sr") * pm.Normal("raw", dims="g"))
        curve = ceiling[GROUP] * pm.math.invlogit(rate[GROUP] * X)
        pm.Normal("y", curve, pm.HalfNormal("sigma"), observed=Y)
    return model


def smooth() -> pm.Model:
    """A Gaussian process by a basis, beside effects."""
    with pm.Model() as model:
        cov = pm.HalfNormal("eta") ** 2 * pm.gp.cov.Matern52(1, ls=pm.InverseGamma("ls", 5, 5))
        f = pm.gp.HSGP(m=[10], c=1.5, cov_func=cov).prior("f", X=np.sort(X)[:, None])
        pm.Normal("y", f + _intercepts()[GROUP], 0.5, observed=Y)
    return model


def named() -> pm.Model:
    """A part of a model with a name of its own."""
    with pm.Model(coords={"g": range(GROUPS)}) as model, pm.Model(name="part"):
        a = pm.Normal("a", pm.Normal("mu"), pm.HalfNormal("tau"), dims="g")
        pm.Normal("y", a[GROUP], 0.5, observed=Y)
    return model


def used_twice() -> pm.Model:
    """Effects that are a mean, a slope and a Deterministic."""
    with pm.Model(coords={"g": range(GROUPS)}) as model:
        raw, tau = pm.Normal("raw", dims="g"), pm.HalfNormal("tau")
        pm.Deterministic("spread", raw.std())
        eta = pm.Normal("mu") + tau * raw[GROUP] + pm.Normal("b") * raw[GROUP] * X
        pm.Normal("y", eta, 0.5, observed=Y)
    return model


def weights_of_classes() -> pm.Model:
    """Counts in classes, whose shares are effects of groups."""
    with pm.Model(coords={"g": range(GROUPS), "class": range(3)}) as model:
        tau = pm.HalfNormal("tau")
        a = pm.ZeroSumNormal("a", tau, dims=("g", "class"))
        share = pm.math.softmax(pm.ZeroSumNormal("mu", dims="class") + a, axis=-1)
        pm.Multinomial("y", n=30, p=share, observed=SHARES, dims=("g", "class"))
    return model


def with_start() -> pm.Model:
    """Effects and a scale with initial values."""
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", initval=1.0)
        a = pm.Normal("a", pm.Normal("mu"), tau, shape=GROUPS, initval=np.zeros(GROUPS))
        b = pm.Normal("b", 0, tau, shape=GROUPS)
        pm.Normal("y", a[GROUP] + b[GROUP] * X, 0.5, observed=Y)
    return model


ALL = [
    three_levels, three_levels_raw, spatial, car, random_walk, random_walk_of_pymc,
    several_likelihoods, effects_in_scales, autoregressive, autoregressive_of_pymc, one_group,
    groups_without_rows, hurdle, zero_inflated, ordered, ordered_effects, by_class, imputed,
    lkj_corr, lkj_by_row, with_heavy_tails, scale_mixture, horseshoe, done, observed_later,
    with_data, custom, by_potential, censored, frailty, truncated, mixture, reference_level,
    group_by_time, measured_with_error, group_predictors, scales_of_groups, products, growth,
    smooth, named, used_twice, weights_of_classes, with_start,
]  # fmt: skip
