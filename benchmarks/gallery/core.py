"""The core notebooks, and examples of the reference."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.gallery.registry import in_gallery


@in_gallery
def overview_linear_regression(rng):
    """PyMC notebook "Introductory Overview of PyMC", linear regression."""
    alpha, beta = pm.Normal("alpha", 0, 10), pm.Normal("beta", 0, 10, shape=2)
    mu = alpha + beta[0] * rng.normal(size=100) + beta[1] * rng.normal(size=100) * 0.2
    pm.Normal("Y_obs", mu=mu, sigma=pm.HalfNormal("sigma", 1), observed=rng.normal(size=100))


@in_gallery
def overview_bioassay_horseshoe(rng):
    """PyMC notebook "Introductory Overview of PyMC", regularized horseshoe of test scores."""
    D, N, D0 = 10, 101, 5
    sigma = pm.HalfNormal("sigma", 2.5)
    tau = pm.HalfStudentT("tau", 2, D0 / (D - D0) * sigma / np.sqrt(N))
    lam = pm.HalfStudentT("lam", 5, shape=D)
    c2 = pm.InverseGamma("c2", 1, 1)
    z = pm.Normal("z", 0.0, 1.0, shape=D)
    beta = z * tau * lam * pt.sqrt(c2 / (c2 + tau**2 * lam**2))
    mu = pm.Normal("beta0", 100, 25.0) + pt.dot(rng.normal(size=(N, D)), beta)
    pm.Normal("scores", mu, sigma, observed=rng.normal(100, 20, size=N).round())


@in_gallery
def linear_robust_regression(rng):
    """PyMC notebook "GLM: Robust Linear Regression"."""
    x = np.linspace(0, 1, 103)
    mu = pm.Normal("Intercept", 0, 2.5) + pm.Normal("x", 0, 2.5) * x
    sigma = pm.HalfStudentT("sigma", 4, 1)
    pm.StudentT(
        "y", nu=pm.Gamma("nu", 2, 0.1), mu=mu, sigma=sigma, observed=x + rng.normal(size=103)
    )


@in_gallery
def reference_lkj_corr(rng):
    """PyMC reference of `LKJCorr`."""
    chol_corr = pm.LKJCorr("chol_corr", eta=4, n=10)
    pm.Deterministic("corr", chol_corr @ chol_corr.T)
    pm.MvNormal("mv_vals_raw", mu=np.zeros(10), chol=chol_corr, shape=10)
    pm.Deterministic("vals", 3 * np.ones(10) * pt.dot(chol_corr, pm.Normal("vals_raw", shape=10)))


@in_gallery
def reference_lkj_cholesky_cov(rng):
    """PyMC reference of `LKJCholeskyCov`."""
    sd_dist = pm.Exponential.dist(1.0, size=10)
    chol, _, _ = pm.LKJCholeskyCov("chol_cov", eta=4, n=10, sd_dist=sd_dist)
    pm.Deterministic("vals", pt.dot(chol, pm.Normal("vals_raw", mu=0, sigma=1, shape=10)))


@in_gallery
def reference_matrix_normal(rng):
    """PyMC reference of `MatrixNormal`."""
    sd_dist = pm.HalfCauchy.dist(beta=2.5, shape=3)
    colchol, _, _ = pm.LKJCholeskyCov("colchol", n=3, eta=2, sd_dist=sd_dist)
    scale = pm.LogNormal("scale", mu=np.log(0.5), sigma=1.0)
    rowcov = pt.diag([scale ** (2 * i) for i in range(3)])
    pm.MatrixNormal(
        "vals",
        mu=np.zeros((3, 3)),
        colchol=colchol,
        rowcov=rowcov,
        observed=rng.normal(size=(3, 3)),
    )


@in_gallery
def reference_zero_inflated_negative_binomial(rng):
    """PyMC reference of `ZeroInflatedNegativeBinomial`, with groups and a slope."""
    mu = pt.exp(
        pm.Normal("a", shape=4)[rng.integers(0, 4, 250)] + pm.Normal("b") * rng.normal(size=250)
    )
    y = rng.poisson(3, 250) * rng.integers(0, 2, 250)
    psi, alpha = pm.Beta("psi", 1, 1), pm.Exponential("alpha", 1)
    pm.ZeroInflatedNegativeBinomial("y", psi, mu, alpha, observed=y)
