"""Gaussian process regression with the latent function integrated out: one Cholesky factor.

    y ~ MvNormal(0, K + sigma^2 I),  K_ij = eta^2 exp(-(x_i - x_j)^2 / (2 ell^2))
    ell ~ Gamma(2, 1),  eta, sigma ~ HalfNormal(1)

Source of the model: C. Rasmussen and C. Williams, Gaussian Processes for Machine Learning (2006),
chapter 2; PyMC's ``pm.gp.Marginal``. Data: simulated, 200 points.
"""

import numpy as np
import pymc as pm

from benchmarks import data

POINTS = 200


def simulate() -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs (200, 1) and the noisy values (200,)."""
    rng = np.random.default_rng(data.SEED)
    x = np.sort(rng.uniform(0, 10, size=POINTS))
    return x[:, None], rng.normal(np.sin(x), 0.3)


def make() -> pm.Model:
    x, y = simulate()
    with pm.Model() as model:
        X = pm.Data("X", x)
        observed = pm.Data("observed", y)
        ell = pm.Gamma("ell", 2, 1)
        eta = pm.HalfNormal("eta", 1)
        sigma = pm.HalfNormal("sigma", 1)
        gp = pm.gp.Marginal(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ell))
        gp.marginal_likelihood("y", X=X, y=observed, sigma=sigma)
    return model
