"""Small models of many kinds, most in one line of PyMC, for `verify`.

The suite in `benchmarks` has models that are worth timing. These have what a user may write: each
family, each prior for a covariance matrix, indices and data of all kinds.
"""

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import scipy.sparse
from pytensor import sparse

N, GROUPS = 60, 7
rng = np.random.default_rng(20)
x = np.round(rng.normal(size=N), 1)
X = rng.normal(size=(N, 3))
y = np.round(rng.normal(size=N), 2)
positive = np.round(rng.gamma(2.0, 1.0, size=N), 2) + 0.01
unit = rng.uniform(0.05, 0.95, size=N).round(2)
binary = rng.integers(0, 2, size=N)
counts = rng.poisson(3.0, size=N)
zero_inflated = counts * binary
category = rng.integers(0, 4, size=N)
group = rng.integers(0, GROUPS, size=N)
other = rng.integers(0, 3, size=N)
few = np.repeat([0.0, 1.0], N // 2)
table = np.bincount(group * 4 + category, minlength=GROUPS * 4).reshape(GROUPS, 4)

MODELS: dict[str, Callable[[], None]] = {}


def in_zoo(build: Callable[[], None]) -> Callable[[], None]:
    """Enter what builds a model, inside of its context, under its name."""
    MODELS[build.__name__] = build
    return build


def effects(name: str = "a", shape: int = GROUPS):
    """Non-centered varying intercepts."""
    scale = pm.HalfNormal(f"{name}_sd")
    return scale * pm.Normal(f"{name}_z", shape=shape)


def predictor():
    """A linear predictor with an effect by group and a slope."""
    return effects()[group] + pm.Normal("b") * x


# Families: what observes the predictor.
FAMILIES = {
    "normal": lambda eta: pm.Normal("y", eta, pm.HalfNormal("s"), observed=y),
    "student_t": lambda eta: pm.StudentT(
        "y", pm.Gamma("nu", 2, 0.1), mu=eta, sigma=1.5, observed=y
    ),
    "student_t_precision": lambda eta: pm.StudentT(
        "y", pm.Gamma("nu", 2, 0.1), lam=pt.exp(eta), observed=y
    ),
    "laplace": lambda eta: pm.Laplace("y", eta, pm.HalfNormal("s"), observed=y),
    "logistic": lambda eta: pm.Logistic("y", eta, pm.HalfNormal("s"), observed=y),
    "cauchy": lambda eta: pm.Cauchy("y", eta, pm.HalfNormal("s"), observed=y),
    "asymmetric_laplace": lambda eta: pm.AsymmetricLaplace("y", 1.2, eta, 0.7, observed=y),
    "skew_normal": lambda eta: pm.SkewNormal(
        "y", mu=eta, sigma=1.0, alpha=pm.Normal("k"), observed=y
    ),
    "ex_gaussian": lambda eta: pm.ExGaussian(
        "y", eta, sigma=0.8, nu=pm.HalfNormal("n"), observed=y
    ),
    "gumbel": lambda eta: pm.Gumbel("y", eta, pm.HalfNormal("s"), observed=y),
    "von_mises": lambda eta: pm.VonMises("y", eta, pm.HalfNormal("s"), observed=y),
    "lognormal": lambda eta: pm.LogNormal("y", eta, pm.HalfNormal("s"), observed=positive),
    "half_normal": lambda eta: pm.HalfNormal("y", pt.exp(eta), observed=positive),
    "gamma": lambda eta: pm.Gamma("y", mu=pt.exp(eta), sigma=pm.HalfNormal("s"), observed=positive),
    "inverse_gamma": lambda eta: pm.InverseGamma("y", 2.0, pt.exp(eta), observed=positive),
    "weibull": lambda eta: pm.Weibull("y", pm.HalfNormal("k"), pt.exp(eta), observed=positive),
    "exponential": lambda eta: pm.Exponential("y", pt.exp(eta), observed=positive),
    "wald": lambda eta: pm.Wald("y", pt.exp(eta), pm.HalfNormal("l"), observed=positive),
    "beta": lambda eta: pm.Beta("y", mu=pm.math.sigmoid(eta), nu=5.0, observed=unit),
    "kumaraswamy": lambda eta: pm.Kumaraswamy("y", pt.exp(eta), 1.5, observed=unit),
    "logit_normal": lambda eta: pm.LogitNormal("y", eta, pm.HalfNormal("s"), observed=unit),
    "bernoulli_logit": lambda eta: pm.Bernoulli("y", logit_p=eta, observed=binary),
    "bernoulli_probit": lambda eta: pm.Bernoulli("y", pm.math.invprobit(eta), observed=binary),
    "bernoulli_cloglog": lambda eta: pm.Bernoulli(
        "y", 1 - pt.exp(-pt.exp(pt.clip(eta, -8, 1))), observed=binary
    ),
    "binomial": lambda eta: pm.Binomial("y", 20, pm.math.sigmoid(eta), observed=counts),
    "beta_binomial": lambda eta: pm.BetaBinomial("y", pt.exp(eta), 2.0, 20, observed=counts),
    "poisson": lambda eta: pm.Poisson("y", pt.exp(eta), observed=counts),
    "negative_binomial": lambda eta: pm.NegativeBinomial(
        "y", pt.exp(eta), pm.HalfNormal("alpha"), observed=counts
    ),
    "geometric": lambda eta: pm.Geometric("y", pm.math.sigmoid(eta), observed=counts + 1),
    "discrete_weibull": lambda eta: pm.DiscreteWeibull(
        "y", pm.math.sigmoid(eta), pm.HalfNormal("k"), observed=counts
    ),
    "zero_inflated_poisson": lambda eta: pm.ZeroInflatedPoisson(
        "y", pm.Beta("psi", 2, 2), pt.exp(eta), observed=zero_inflated
    ),
    "zero_inflated_binomial": lambda eta: pm.ZeroInflatedBinomial(
        "y", pm.Beta("psi", 2, 2), 20, pm.math.sigmoid(eta), observed=zero_inflated
    ),
    "hurdle_gamma": lambda eta: pm.HurdleGamma(
        "y", pm.Beta("psi", 2, 2), 2.0, pt.exp(eta), observed=zero_inflated
    ),
    "ordered_logistic": lambda eta: pm.OrderedLogistic(
        "y", eta=eta, cutpoints=cuts(), observed=category
    ),
    "ordered_probit": lambda eta: pm.OrderedProbit(
        "y", eta=eta, cutpoints=cuts(), observed=category
    ),
    "categorical": lambda eta: pm.Categorical(
        "y", logit_p=eta[:, None] * pm.Normal("k", shape=4), observed=category
    ),
    "censored": lambda eta: pm.Censored(
        "y", pm.Normal.dist(eta, pm.HalfNormal("s")), -1.0, 1.0, observed=np.clip(y, -1, 1)
    ),
    "truncated": lambda eta: pm.Truncated(
        "y", pm.Normal.dist(eta, pm.HalfNormal("s")), lower=0.0, observed=positive
    ),
    "truncated_logistic": lambda eta: pm.Truncated(
        "y", pm.Logistic.dist(eta, pm.HalfNormal("s")), -1.0, 1.0, observed=np.clip(y, -1, 1)
    ),
    "mixture": lambda eta: pm.Mixture(
        "y",
        pm.Dirichlet("w", np.ones(2)),
        [pm.Normal.dist(eta, 1.0), pm.Normal.dist(0.0, 2.0)],
        observed=y,
    ),
    "missing_observations": lambda eta: pm.Normal(
        "y", eta, 1.0, observed=np.ma.masked_where(few * (x > 0.5) == 1, y)
    ),
    "potential": lambda eta: pm.Potential("y", -pt.sum(few * pt.softplus(-eta))),
    "custom_dist": lambda eta: pm.CustomDist(
        "y", eta, logp=lambda value, mu: -pt.log(pt.cosh(value - mu)), observed=y
    ),
}


def cuts():
    """Three ordered cut points."""
    ordered = pm.distributions.transforms.ordered
    return pm.Normal("cuts", 0, 2, shape=3, transform=ordered, initval=[-1.0, 0.0, 1.0])


def of_family(family: Callable) -> Callable[[], None]:
    """Return what builds a hierarchical regression with a family."""
    return lambda: family(predictor())


MODELS |= {name: of_family(family) for name, family in FAMILIES.items()}


@in_zoo
def categorical_of_groups():
    """Multinomial logit whose rows repeat, by data whose length is unknown until the model is frozen."""
    eta = effects()[pm.Data("index", group)]
    pm.Categorical("y", logit_p=pt.stack([eta, 2 * eta, -eta], axis=1), observed=other)


@in_zoo
def counts_of_rates():
    """Rates are products of an exposure and of factors by group, as in tables of claims."""
    exposure = pm.Data("exposure", np.exp(x))
    by_group, by_other = (
        pm.Gamma("by_group", 2, 2, shape=GROUPS),
        pm.Gamma("by_other", 2, 2, shape=3),
    )
    rate = exposure * by_group[pm.Data("index", group)] * by_other[other]
    pm.Poisson("y", rate, observed=counts)


@in_zoo
def shares_of_groups():
    """Counts of categories, whose shares differ between groups, by data whose length is unknown until the model is frozen."""
    p = pm.Dirichlet("p", np.ones(3), shape=(GROUPS, 3))
    answers = np.random.default_rng(0).multinomial(6, [0.2, 0.3, 0.5], N)
    pm.Multinomial("y", 6, p[pm.Data("index", group)], observed=pm.Data("answers", answers))


@in_zoo
def crossed_effects():
    eta = effects()[group] + effects("c", 3)[other] + pm.Normal("b", shape=3)[other] * x
    pm.Normal("y", eta, pm.HalfNormal("s", shape=3)[other], observed=y)


@in_zoo
def nested_groups_with_negative_index():
    region = pm.Normal("region", shape=3)
    district = pm.Normal("district", region[np.arange(GROUPS) % 3 - 3], 1.0)
    pm.Poisson("y", pt.exp(district[group - GROUPS]), observed=counts)


@in_zoo
def matrix_of_effects():
    effect = pm.Normal("table", shape=(GROUPS, 3))[group, other]
    pm.Bernoulli("y", logit_p=effect, observed=binary)


@in_zoo
def matrix_of_covariates():
    pm.Poisson("y", pt.exp(0.3 * (X @ pm.Normal("b", shape=3)) + effects()[group]), observed=counts)


@in_zoo
def horseshoe():
    scales = pm.HalfCauchy("tau", 1.0) * pm.HalfCauchy("lam", 1.0, shape=3)
    pm.Normal("y", X @ (pm.Normal("b", shape=3) * scales), 1.0, observed=y)


@in_zoo
def offsets_and_two_likelihoods():
    eta = effects()[group]
    pm.Poisson("n", pt.exp(eta + np.log(positive)), observed=counts)
    pm.Normal("y", eta, 1.0, observed=y)


@in_zoo
def joined_blocks():
    second = pm.Normal("second", shape=GROUPS)[group]
    rate = pt.concatenate([pt.exp(effects()[group]), pt.exp(second)])
    pm.Poisson("y", rate, observed=np.tile(counts, 2))


@in_zoo
def imputed_covariate():
    covariate = np.ma.masked_where(few * (y > 0.5) == 1, x)
    imputed = pm.Normal("x", pm.Normal("m"), pm.HalfNormal("sx"), observed=covariate)
    pm.Normal("y", effects()[group] + pm.Normal("b") * imputed, pm.HalfNormal("s"), observed=y)


@in_zoo
def observations_in_a_matrix():
    pm.Normal("y", pm.Normal("a", shape=6), pm.HalfNormal("s"), observed=y.reshape(10, 6))


@in_zoo
def random_walk():
    pm.Poisson("y", pt.exp(pm.GaussianRandomWalk("w", 0, 0.3, shape=N)), observed=counts)


@in_zoo
def autoregression():
    pm.AR("y", pm.Normal("rho", 0, 0.3, shape=2), sigma=pm.HalfNormal("s"), observed=y)


@in_zoo
def zero_sum_effects():
    pm.Normal("y", pm.ZeroSumNormal("a", shape=GROUPS)[group], 1.0, observed=y)


@in_zoo
def dirichlet_multinomial():
    pm.DirichletMultinomial("y", table.sum(1), pm.HalfNormal("a", shape=4), observed=table)


@in_zoo
def multinomial():
    pm.Multinomial("y", table.sum(1), pm.Dirichlet("p", np.ones(4)), observed=table)


@in_zoo
def errors_with_covariances():
    """A meta-analysis of two outcomes."""
    x = np.random.default_rng(0).normal(size=(GROUPS, 2, 5))
    between = pm.HalfNormal("between", shape=2)
    cov = pt.diag(between**2) + x @ x.transpose(0, 2, 1)
    pm.MvNormal("y", pm.Normal("mu", shape=2), cov=cov, observed=x[..., 0])


@in_zoo
def gaussian_process():
    with_scale = pm.gp.cov.ExpQuad(1, ls=pm.HalfNormal("ls")) * pm.HalfNormal("eta") ** 2
    pm.gp.Marginal(cov_func=with_scale).marginal_likelihood("y", X[:20, :1], y[:20], sigma=0.5)


@in_zoo
def rational_quadratic_process():
    cov = pm.gp.cov.RatQuad(1, alpha=pm.Gamma("alpha", 5, 2), ls=pm.HalfNormal("ls"))
    pm.gp.Marginal(cov_func=cov).marginal_likelihood("y", X[:20, :1], y[:20], sigma=0.5)


@in_zoo
def latent_gaussian_process():
    cov = pm.gp.cov.ExpQuad(1, ls=pm.HalfNormal("ls")) * pm.HalfNormal("eta") ** 2
    f = pm.gp.Latent(cov_func=cov).prior("f", X=np.linspace(0, 3, 34)[:, None])
    pm.Poisson("y", pt.exp(f), observed=counts[:34])


@in_zoo
def hilbert_space_gaussian_process():
    cov = pm.gp.cov.Matern52(1, ls=pm.HalfNormal("ls"))
    pm.Normal("y", pm.gp.HSGP([8], c=2.0, cov_func=cov).prior("f", X[:, :1]), 1.0, observed=y)


@in_zoo
def periodic_hilbert_space():
    cov = pm.gp.cov.Periodic(1, period=1.0, ls=pm.LogNormal("ls"))
    gp = pm.gp.HSGPPeriodic(m=8, scale=pm.HalfNormal("scale"), cov_func=cov)
    pm.Normal("y", gp.prior("f", X[:, :1]), 1.0, observed=y)


@in_zoo
def ratings():
    seen = np.zeros((15, 15), dtype=bool)
    seen.flat[::4] = True
    user, film = pm.Normal("user", shape=(15, 10)), pm.Normal("film", shape=(15, 10))
    pm.Normal("y", (user @ film.T)[seen], 1.0, observed=y[: seen.sum()])


@in_zoo
def car():
    ring = np.roll(np.eye(GROUPS), 1, axis=1)
    effect = pm.CAR("phi", np.zeros(GROUPS), ring + ring.T, pm.Beta("alpha", 2, 2), 1.0)
    pm.Poisson("y", pt.exp(effect[group]), observed=counts)


@in_zoo
def lkj_slopes():
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
    b = pm.Normal("z", shape=(GROUPS, 2)) @ chol.T
    pm.Normal("y", b[group, 0] + b[group, 1] * x, pm.HalfNormal("s"), observed=y)


@in_zoo
def two_lkj_blocks():
    for name, index, size in (("g", group, GROUPS), ("o", other, 3)):
        sd = pm.HalfNormal.dist(1.0, shape=3)
        chol, _, _ = pm.LKJCholeskyCov(f"chol_{name}", n=3, eta=1.0, sd_dist=sd)
        b = pm.MvNormal(f"b_{name}", np.zeros(3), chol=chol, shape=(size, 3))
        pm.Normal(f"y_{name}", (b[index] * X).sum(-1), 1.0, observed=y)


@in_zoo
def packed_cholesky():
    sd = pm.Gamma.dist(2.0, 1.0)
    packed = pm.LKJCholeskyCov("chol", n=4, eta=3.0, sd_dist=sd, compute_corr=False)
    chol = pm.expand_packed_triangular(4, packed)
    pm.MvNormal("y", np.zeros(4), chol=chol, observed=y.reshape(15, 4))


@in_zoo
def lkj_corr_and_scales():
    corr = pm.LKJCorr("corr", n=3, eta=2.0)
    sd = pm.HalfNormal("sd", shape=3)
    pm.MvNormal("y", np.zeros(3), cov=sd[:, None] * corr * sd[None, :], observed=y.reshape(20, 3))


@in_zoo
def multivariate_t():
    chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2.0, sd_dist=pm.HalfNormal.dist())
    pm.MvStudentT("y", nu=5.0, mu=pm.Normal("mu", shape=3), chol=chol, observed=y.reshape(20, 3))


@in_zoo
def matrix_normal():
    chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2.0, sd_dist=pm.HalfNormal.dist())
    b = pm.MatrixNormal("b", np.zeros((3, 3)), rowchol=chol, colcov=np.eye(3), shape=(3, 3))
    pm.Normal("y", (X * b[other]).sum(-1), 1.0, observed=y)


@in_zoo
def kronecker_normal():
    covs = [pm.HalfNormal("s") * np.eye(3) + 0.1, np.eye(20) + 0.2]
    pm.KroneckerNormal("y", np.zeros(60), covs=covs, sigma=0.5, observed=y)


@in_zoo
def multivariate_random_walk():
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.LogNormal.dist(0.0, 0.5))
    start = pm.MvNormal.dist(np.zeros(2), np.eye(2))
    walk = pm.MvGaussianRandomWalk("walk", np.zeros(2), chol=chol, init_dist=start, shape=(N, 2))
    pm.Poisson("y", pt.exp(walk[:, 0] + walk[:, 1] * x), observed=counts)


@in_zoo
def effects_with_heavy_tails():
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.HalfStudentT.dist(3, 1))
    b = pm.MvStudentT("b", nu=5.0, mu=np.zeros(2), scale=chol @ chol.T, shape=(GROUPS, 2))
    pm.Poisson("y", pt.exp(b[group, 0] + b[group, 1] * x), observed=counts)


@in_zoo
def matrix_normal_by_covariances():
    rows, columns = (
        pm.LKJCholeskyCov(name, n=n, eta=2.0, sd_dist=pm.HalfNormal.dist())[0]
        for name, n in (("rows", 3), ("columns", 20))
    )
    covs = {"rowcov": rows @ rows.T, "colcov": columns @ columns.T}
    pm.MatrixNormal("y", np.zeros((3, 20)), **covs, observed=y.reshape(3, 20))


@in_zoo
def kronecker_by_hand():
    factors = [
        pm.LKJCholeskyCov(name, n=n, eta=2.0, sd_dist=pm.HalfCauchy.dist(1.0))[0]
        for name, n in (("a", 3), ("b", 2))
    ]
    pm.MvNormal("y", np.zeros(6), chol=pt.linalg.kron(*factors), observed=y.reshape(10, 6))


@in_zoo
def factor_analysis():
    loadings, noise = pm.Normal("w", shape=(6, 2)), pm.HalfNormal("noise", shape=6)
    pm.MvNormal(
        "y", np.zeros(6), cov=loadings @ loadings.T + pt.diag(noise), observed=y.reshape(10, 6)
    )


@in_zoo
def scaled_correlations():
    corr, sd = pm.LKJCorr("corr", n=3, eta=2.0), pt.diag(pm.HalfNormal("sd", shape=3))
    pm.MvNormal("y", np.zeros(3), cov=sd @ (corr @ corr.T) @ sd, observed=y.reshape(20, 3))


@in_zoo
def precision_of_a_ring():
    ring = np.roll(np.eye(6), 1, axis=1)
    tau = 2 * np.eye(6) - pm.Beta("alpha", 2, 2) * (ring + ring.T)
    pm.MvNormal("y", np.zeros(6), tau=tau, observed=y.reshape(10, 6))


@in_zoo
def known_relationships():
    cov, mu = pm.HalfNormal("s") * (np.eye(6) + 0.5), pm.Normal("mu", shape=6)
    pm.MvNormal("y", mu, cov=cov, observed=y.reshape(10, 6))


@in_zoo
def many_correlated_effects():
    chol, _, _ = pm.LKJCholeskyCov("chol", n=20, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
    b = pm.Normal("z", shape=(2 * N, 20)) @ chol.T
    pm.Laplace("y", b, 1.0, observed=np.resize(y, (2 * N, 20)))


@in_zoo
def zero_inflated_negative_binomial():
    rate = pt.exp(pm.Normal("a") + pm.Normal("b") * np.linspace(-1, 1, 4 * N))
    pm.ZeroInflatedNegativeBinomial("y", 0.7, rate, pm.HalfNormal("s"), observed=np.tile(counts, 4))


@in_zoo
def beta_of_crossed_groups():
    alpha, beta = pt.exp(pm.Normal("a", shape=GROUPS)), pt.exp(pm.Normal("b", shape=3))
    pm.Beta("y", alpha[group], beta[other], observed=unit)


@in_zoo
def mutable_data():
    at, value = pm.Data("at", group), pm.Data("value", y)
    pm.Normal("y", effects()[at], pm.HalfNormal("s"), observed=value)


@in_zoo
def single_precision_data():
    pm.Normal("y", effects()[group] + x.astype("float32"), 1.0, observed=y.astype("float32"))


@in_zoo
def one_row():
    pm.Normal("y", effects()[group[:1]], pm.HalfNormal("s"), observed=y[:1])


@in_zoo
def no_data():
    pm.Normal("t", 0, pt.exp(pm.Normal("v", 0, 3) / 2), shape=9)


@in_zoo
def hidden_markov_model():
    transition = pm.Dirichlet("p", np.ones((2, 2)))
    emission = pm.Normal.logp(y[:, None], pm.Normal("mu", shape=2), 1.0)

    def step(row, before, p):
        return row + pt.logsumexp(before[:, None] + pt.log(p), axis=0)

    after = pytensor.scan(
        step,
        sequences=[emission[1:]],
        outputs_info=[emission[0]],
        non_sequences=[transition],
        return_updates=False,
    )
    pm.Potential("y", pt.logsumexp(after[-1]))


@in_zoo
def outcomes_of_one_index():
    rows = np.sin(np.outer(np.arange(4 * N) % N, np.arange(1, 11)))
    index = pt.logsumexp(rows * pm.Normal("b", shape=10), axis=1)
    pm.StudentT("y", 4, mu=index, sigma=pm.HalfNormal("s"), observed=np.linspace(-1, 1, 4 * N))
    pm.Poisson("count", pt.exp(index / 4), observed=np.resize(counts[::-1], 4 * N))


@in_zoo
def change_points_of_categories():
    probabilities = pm.Dirichlet("p", np.ones(4), shape=(2, 4))
    after = pm.math.sigmoid(np.arange(N)[:, None] - pm.Uniform("at", 0, N, shape=3))[..., None]
    table = pt.log((1 - after) * probabilities[0] + after * probabilities[1])
    rows, columns = np.indices((N, 3))
    pm.Potential("y", table[rows, columns, np.resize(category, (N, 3))])


@in_zoo
def groups_of_groups():
    """Each row has a group of level 1, each of these a group of level 2; both indices select effects."""
    coarse = np.arange(GROUPS) % 3
    eta = pm.Normal("a", shape=3)[coarse][group] + pm.Normal("b") * x
    pm.Poisson("y", pt.exp(eta), observed=counts)


@in_zoo
def heavy_tailed_rows():
    """A multivariate Student t by the Mahalanobis distances of all rows."""
    precision = pm.HalfNormal("tau", shape=3)
    from_mean = X - pm.Normal("mu", shape=3)
    distances = pt.diag(from_mean @ pt.diag(precision) @ from_mean.T)
    pm.Potential("y", N * pt.log(precision).sum() / 2 - 3.5 * pt.log1p(distances / 4).sum())


@in_zoo
def whitened_effects():
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1, shape=2))
    mean, a = pm.Normal("mean", shape=(2, 1)), pm.Flat("a", shape=(2, GROUPS))
    z = pm.Deterministic("z", pt.linalg.solve_triangular(chol, a - mean, lower=True))
    pm.Potential("prior", -pt.sqr(z).sum() / 2 - GROUPS * pt.log(pt.diagonal(chol)).sum())
    effects = mean + chol @ z
    eta = effects[0, group] + effects[1, group] * x
    pm.Normal("y", eta, pm.HalfNormal("s"), observed=y)


@in_zoo
def sparse_design():
    indicators = scipy.sparse.csr_matrix((np.ones(N), (np.arange(N), group)), shape=(N, GROUPS))
    slopes = indicators.multiply(x[:, None])
    design = scipy.sparse.hstack([indicators, slopes]).tocsr()
    eta = sparse.structured_dot(design, effects(shape=2 * GROUPS)[:, None])
    pm.Poisson("y", pt.exp(eta.ravel()), observed=counts)


def make(name: str) -> pm.Model:
    """Return a model by its name."""
    with pm.Model() as model:
        MODELS[name]()
    return model
