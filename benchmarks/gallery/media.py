"""Marketing mix: what advertising in several media adds, as pymc-marketing writes it."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.gallery.registry import in_gallery

LAGS = 8


def _spend(rng, weeks, channels):
    """Return what is spent a week and channel, scaled to at most one, with weeks off."""
    spent = rng.gamma(2, 1, size=(weeks, channels)) * (rng.random((weeks, channels)) < 0.8)
    return spent / spent.max(axis=0)


def geometric_adstock(x, alpha, lags=LAGS):
    """Return what of the spending of the last weeks still acts, by a convolution as pymc-marketing has it."""
    weights = alpha[..., None] ** pt.arange(lags)
    weights = weights / weights.sum(axis=-1, keepdims=True)
    padded = pt.concatenate([pt.zeros((lags - 1, x.shape[1])), x])
    lagged = pt.stack([padded[lags - 1 - i : padded.shape[0] - i] for i in range(lags)], axis=-1)
    return (lagged * weights).sum(axis=-1)


def logistic_saturation(x, lam):
    """Return how far the effect of spending is from its limit."""
    return (1 - pt.exp(-lam * x)) / (1 + pt.exp(-lam * x))


def _yearly(rng, weeks, modes=2):
    t = 2 * np.pi * np.arange(weeks)[:, None] / 52 * np.arange(1, modes + 1)
    return np.concatenate([np.sin(t), np.cos(t)], axis=1)


@in_gallery
def marketing_mix(rng):
    """pymc-marketing, notebook "MMM Example": two channels, adstock, logistic saturation, yearly Fourier modes."""
    weeks, channels = 179, 2
    x = geometric_adstock(
        pt.as_tensor(_spend(rng, weeks, channels)), pm.Beta("alpha", 1, 3, shape=channels)
    )
    saturated = logistic_saturation(x, pm.Gamma("lam", 3, 1, shape=channels))
    contribution = saturated * pm.HalfNormal("beta", 2, shape=channels)
    controls = np.stack([np.arange(weeks) == 51, np.arange(weeks) == 103], axis=1).astype(float)
    mu = pm.Normal("intercept", 0, 2) + contribution.sum(axis=-1)
    mu += controls @ pm.Normal("gamma_control", 0, 2, shape=2)
    mu += _yearly(rng, weeks) @ pm.Laplace("gamma_fourier", 0, 1, shape=4)
    y = rng.normal(0.6, 0.2, weeks)
    pm.Normal("y", mu=mu, sigma=pm.HalfNormal("sigma", 2), observed=y)


@in_gallery
def marketing_mix_by_region(rng):
    """pymc-marketing, multidimensional `MMM`: eight channels, twelve regions, 104 weeks, effects by region."""
    weeks, channels, regions = 104, 8, 12
    spent = np.stack([_spend(rng, weeks, channels) for _ in range(regions)], axis=1)
    alpha = pm.Beta("alpha", 1, 3, shape=channels)
    x = geometric_adstock(pt.as_tensor(spent.reshape(weeks, -1)), pt.tile(alpha, regions))
    x = x.reshape((weeks, regions, channels))
    saturated = logistic_saturation(x, pm.Gamma("lam", 3, 1, shape=channels))
    scale = pm.HalfNormal("scale", 1, shape=channels)
    beta = pm.HalfNormal("beta", scale, shape=(regions, channels))
    intercept = pm.Normal("intercept", pm.Normal("mean"), 1.0, shape=regions)
    mu = intercept + (saturated * beta).sum(axis=-1)
    y = rng.normal(1.0, 0.3, size=(weeks, regions))
    pm.Normal("y", mu=mu, sigma=pm.HalfNormal("sigma", 1, shape=regions), observed=y)
