"""Matrices, time series and space in the example gallery."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.gallery.registry import in_gallery


@in_gallery
def lkj_covariance(rng):
    """PyMC notebook "LKJ Cholesky Covariance Priors for Multivariate Normal Models"."""
    chol, _, _ = pm.LKJCholeskyCov("chol", eta=4, n=2, sd_dist=pm.Exponential.dist(1))
    mu = pm.Normal("mu", 0.0, sigma=5, shape=2)
    pm.MvNormal("obs", mu, chol=chol, observed=rng.normal(size=(10_000, 2)))


@in_gallery
def factor_analysis(rng):
    """PyMC notebook "Factor analysis"."""
    k, d, n = 2, 10, 250
    W = pt.set_subtensor(pt.zeros((d, k))[np.tril_indices(d, m=k)], pm.Normal("W", shape=d * k - 1))
    cov = W @ W.T + pt.diag(pm.HalfNormal("psi", 1.0, shape=d))
    pm.MvNormal("X", 0.0, chol=pt.linalg.cholesky(cov), observed=rng.normal(size=(n, d)))


@in_gallery
def probabilistic_matrix_factorization(rng):
    """PyMC notebook "Probabilistic Matrix Factorization for Making Personalized Recommendations"."""
    n, m, k = 100, 100, 10
    U = pm.MvNormal("U", mu=np.zeros(k), tau=2.0 * np.eye(k), shape=(n, k))
    V = pm.MvNormal("V", mu=np.zeros(k), tau=2.0 * np.eye(k), shape=(m, k))
    seen = rng.random((n, m)) < 0.3
    pm.Normal("R", mu=(U @ V.T)[seen], tau=2.0, observed=rng.normal(size=seen.sum()))


@in_gallery
def confirmatory_factor_analysis(rng):
    """PyMC notebook "Confirmatory Factor Analysis and Structural Equation Models in Psychometrics"."""
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0, shape=2))
    ksi = pm.MvNormal("ksi", np.zeros(2), chol=chol, shape=(283, 2))
    of_factor = [pm.Normal(f"lam{i}", 1, 10, shape=3) for i in range(2)]
    loading = [pt.set_subtensor(x[0], 1) for x in of_factor]
    mu = [pm.Normal(f"tau{i}", 3, 10) + ksi[:, i // 3] * loading[i // 3][i % 3] for i in range(6)]
    psi = pm.InverseGamma("Psi", 5, 10, shape=6)
    pm.Normal("likelihood", pt.stack(mu).T, psi, observed=rng.normal(3, 1, size=(283, 6)))


@in_gallery
def imputation_with_lkj(rng):
    """PyMC notebook "Bayesian Missing Data Imputation"."""
    chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=1.0, sd_dist=pm.HalfNormal.dist(1, shape=3))
    mus = pm.Normal("mus", 0, 1, shape=3)
    data = rng.normal(size=(200, 3))
    data[rng.random(data.shape) < 0.1] = np.nan
    rows = pm.MvNormal("rows", mus, chol=chol, shape=(200, 3))
    pm.Normal("y", rows, 0.1, observed=np.ma.masked_invalid(data))


def _error_covariances(rng, rows, n):
    """Return the covariance of the errors of each row."""
    x = rng.normal(size=(rows, n, 2 * n))
    return 0.1 * x @ x.transpose(0, 2, 1) / n


@in_gallery
def multivariate_meta_analysis(rng):
    """R package mvmeta, data "fibrinogen": four log hazard ratios of each of 31 studies, with the covariances of their errors."""
    chol, _, _ = pm.LKJCholeskyCov("chol", n=4, eta=2, sd_dist=pm.HalfNormal.dist(1, shape=4))
    cov = chol @ chol.T + _error_covariances(rng, 31, 4)
    pm.MvNormal("b", pm.Normal("mu", 0, 5, shape=4), cov=cov, observed=rng.normal(size=(31, 4)))


@in_gallery
def extreme_deconvolution(rng):
    """Bovy, Hogg and Roweis (2011), "Extreme deconvolution": velocities of stars, a tenth of the 11 865, each with its own errors."""
    errors, classes = _error_covariances(rng, 1_187, 3), []
    for k in range(3):
        chol, _, _ = pm.LKJCholeskyCov(
            f"chol{k}", n=3, eta=2, sd_dist=pm.HalfNormal.dist(1, shape=3)
        )
        mean = pm.Normal(f"mean{k}", 0, 2, shape=3)
        classes.append(pm.MvNormal.dist(mean, cov=chol @ chol.T + errors))
    weights = pm.Dirichlet("weights", np.ones(3))
    pm.Mixture("velocity", weights, classes, observed=rng.normal(size=(1_187, 3)))


@in_gallery
def stochastic_volatility(rng):
    """PyMC notebook "Stochastic Volatility model"."""
    walk = pm.GaussianRandomWalk(
        "volatility",
        sigma=pm.Exponential("step_size", 10),
        shape=2905,
        init_dist=pm.Normal.dist(0, 1),
    )
    nu = pm.Exponential("nu", 0.1)
    pm.StudentT("returns", nu=nu, lam=np.exp(-2 * walk), observed=rng.normal(size=2905) / 100)


@in_gallery
def autoregressive_model(rng):
    """PyMC notebook "Analysis of An AR(1) Model in PyMC"."""
    coefficients = pm.Normal("coefs", 0, 0.2, shape=3)
    init = pm.Normal.dist(-10, 10, shape=2)
    pm.AR(
        "ar",
        coefficients,
        sigma=pm.HalfNormal("sigma", 0.2),
        init_dist=init,
        constant=True,
        observed=rng.normal(size=700),
    )


@in_gallery
def air_passengers(rng):
    """PyMC notebook "Air passengers - Prophet-like model"."""
    t = np.linspace(0, 1, 144)
    waves = np.column_stack(
        [f(2 * np.pi * k * t * 12) for k in range(1, 11) for f in (np.sin, np.cos)]
    )
    trend = pm.Normal("alpha", 0, 0.5) + pm.Normal("beta", 0, 0.5) * t
    season = pm.Normal("fourier", 0, 0.1, shape=20)
    mu = trend * (1 + pm.math.sum(season * waves, axis=1))
    pm.Normal("y", mu=mu, sigma=pm.HalfNormal("sigma", 0.1), observed=rng.normal(size=144))


@in_gallery
def vector_autoregression(rng):
    """PyMC notebook "Bayesian Vector Autoregressive Models"."""
    data = rng.normal(size=(200, 3))
    lag = pm.Normal("lag_coefs", 0, 0.5, shape=(3, 2, 3))
    mean = [
        sum(pt.sum(lag[e, i] * data[1 - i : 199 - i], axis=-1) for i in range(2)) for e in range(3)
    ]
    mu = pm.Normal("intercept", shape=3) + pt.stack(mean, axis=-1)
    chol, _, _ = pm.LKJCholeskyCov("chol", eta=10.0, n=3, sd_dist=pm.Exponential.dist(1))
    pm.MvNormal("obs", mu=mu, chol=chol, observed=data[2:])


@in_gallery
def euler_maruyama(rng):
    """PyMC notebook "Inferring parameters of SDEs using a Euler-Maruyama scheme"."""

    def sde(x, lam):
        return lam * x, 2.0

    path = pm.EulerMaruyama(
        "xh", 0.5, sde, (pm.Flat("lam"),), shape=200, init_dist=pm.Normal.dist()
    )
    pm.Normal("zh", mu=path, sigma=5e-3, observed=rng.normal(size=200) / 10)


@in_gallery
def conditional_autoregression(rng):
    """PyMC notebook "Conditional Autoregressive (CAR) Models for Spatial Data"."""
    W = np.triu(rng.random((56, 56)) < 0.1, 1).astype(float)
    W[np.arange(55), np.arange(1, 56)] = 1.0
    spatial = pm.CAR(
        "phi", np.zeros(56), W + W.T, pm.Beta("alpha", 1, 1), pm.Gamma("tau", 3.3, 1.8)
    )
    theta = pm.Normal("theta", 0, pm.Gamma("tau_ind", 3.3, 1.8) ** -0.5, shape=56)
    eta = np.log(np.arange(1, 57)) + pm.Normal("b0") + pm.Normal("b1") * rng.normal(size=56)
    pm.Poisson("y", pt.exp(eta + spatial + theta), observed=rng.poisson(9, 56))


@in_gallery
def besag_york_mollie(rng):
    """PyMC notebook "The Besag-York-Mollie Model for Spatial Data"."""
    W = np.diag(np.ones(199), 1)
    rho, sigma = pm.Beta("rho", 0.5, 0.5), pm.HalfNormal("sigma", 1)
    theta, phi = pm.Normal("theta", 0, 1, shape=200), pm.ICAR("phi", W=W + W.T)
    mixture = pt.sqrt(1 - rho) * theta + pt.sqrt(rho / 0.7) * phi
    mu = pt.exp(np.log(np.arange(1, 201)) + pm.Normal("b0") + sigma * mixture)
    pm.Poisson("y", mu, observed=rng.poisson(5, 200))
