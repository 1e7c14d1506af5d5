"""Gaussian processes of the example gallery."""

import numpy as np
import pymc as pm

from benchmarks.gallery.registry import in_gallery


@in_gallery
def gp_marginal(rng):
    """PyMC notebook "Marginal Likelihood Implementation"."""
    cov = pm.HalfCauchy("eta", 5) ** 2 * pm.gp.cov.Matern52(1, pm.Gamma("ell", 2, 1))
    gp = pm.gp.Marginal(cov_func=cov)
    x = np.linspace(0, 10, 100)[:, None]
    gp.marginal_likelihood("y", X=x, y=rng.normal(size=100), sigma=pm.HalfCauchy("sigma", 5))


@in_gallery
def gp_latent(rng):
    """PyMC notebook "Gaussian Processes: Latent Variable Implementation"."""
    cov = pm.Exponential("eta", 1.0) ** 2 * pm.gp.cov.ExpQuad(1, pm.InverseGamma("ell", 3, 5))
    x = np.linspace(0, 10, 50)[:, None]
    f = pm.gp.Latent(cov_func=cov).prior("f", X=x)
    sigma = pm.HalfNormal("sigma", 1)
    pm.StudentT(
        "y", mu=f, lam=1.0 / sigma, nu=1 + pm.Gamma("nu", 2, 0.1), observed=rng.normal(size=50)
    )


@in_gallery
def gp_sparse(rng):
    """PyMC notebook "Sparse Approximations"."""
    cov = pm.HalfNormal("eta", 5) ** 2 * pm.gp.cov.Matern52(1, pm.Gamma("ell", 2, 1))
    gp = pm.gp.MarginalApprox(cov_func=cov, approx="VFE")
    x = np.sort(10 * rng.random((150, 1)), axis=0)
    sigma = pm.HalfNormal("sigma", 5)
    gp.marginal_likelihood("y", X=x, Xu=x[::10], y=rng.normal(size=150), sigma=sigma)


@in_gallery
def gp_additive_mauna_loa(rng):
    """PyMC notebook "Gaussian Process for CO2 at Mauna Loa"."""

    def scaled(name, cov):
        return pm.HalfCauchy(f"eta_{name}", 2) ** 2 * cov

    season = pm.gp.cov.Periodic(1, 1, ls=1.3) * pm.gp.cov.Matern52(1, pm.Gamma("l_d", 10, 0.075))
    medium = pm.gp.cov.RatQuad(1, alpha=pm.Gamma("a", 5, 2), ls=pm.Gamma("l_m", 2, 0.75))
    trend = pm.gp.cov.ExpQuad(1, pm.Gamma("l_t", 4, 0.1))
    noise = scaled("n", pm.gp.cov.Matern32(1, 1.0)) + pm.gp.cov.WhiteNoise(0.1)
    cov = scaled("p", season) + scaled("m", medium) + scaled("t", trend)
    x = np.linspace(0, 10, 80)[:, None]
    pm.gp.Marginal(cov_func=cov).marginal_likelihood("y", X=x, y=rng.normal(size=80), sigma=noise)


@in_gallery
def gp_hsgp_birthdays(rng):
    """PyMC notebook "Baby Births Modeling with HSGPs"."""
    x = np.linspace(-1, 1, 730)[:, None]
    trend = pm.gp.HSGP([20], c=1.5, cov_func=pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("ls")))
    year = pm.gp.cov.Periodic(1, period=1, ls=pm.LogNormal("ls_p"))
    yearly = pm.gp.HSGPPeriodic(m=20, scale=pm.HalfNormal("s"), cov_func=year)
    week = pm.ZeroSumNormal("day_of_week", shape=7)[np.arange(730) % 7]
    mu = trend.prior("f_trend", x) + yearly.prior("f_year", x) + week
    pm.StudentT("births", nu=5, mu=mu, sigma=pm.HalfNormal("sigma"), observed=rng.normal(size=730))


@in_gallery
def gp_kronecker(rng):
    """PyMC notebook "Kronecker Structured Covariances"."""
    covs = [pm.gp.cov.Matern32(1, ls=pm.InverseGamma(f"ls{i}", 3, 2)) for i in range(2)]
    gp = pm.gp.MarginalKron(cov_funcs=covs)
    Xs = [np.linspace(0, 1, n)[:, None] for n in (8, 12)]
    gp.marginal_likelihood("y", Xs, rng.normal(size=96), pm.HalfNormal("sigma"))


@in_gallery
def gp_coregion(rng):
    """PyMC notebook "Multi-output Gaussian Processes: Coregionalization models using Hadamard product"."""
    outputs = np.repeat(np.arange(3), 30)
    x = np.column_stack([np.tile(np.linspace(0, 10, 30), 3), outputs])
    cov = pm.gp.cov.ExpQuad(2, ls=pm.Gamma("ell", 2, 0.5), active_dims=[0])
    weights = pm.Normal("W", 0, 3, shape=(3, 2), initval=rng.normal(size=(3, 2)))
    kappa = pm.Gamma("kappa", 1.5, 1, shape=3)
    coregion = pm.gp.cov.Coregion(2, active_dims=[1], kappa=kappa, W=weights)
    gp = pm.gp.Marginal(cov_func=cov * coregion)
    gp.marginal_likelihood("y", x, rng.normal(size=90), sigma=pm.HalfNormal("sigma", 3))
