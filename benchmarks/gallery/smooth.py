"""Smooth effects: bases of functions, and neighbors in space."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.interpolate import BSpline

from benchmarks.gallery.registry import in_gallery


def _cubic_basis(x, columns):
    """Return the B-spline design that `bs(x, df=columns)` of Bambi makes: knots at quantiles, no intercept."""
    inner = np.quantile(x, np.linspace(0, 1, columns - 1)[1:-1])
    knots = np.r_[[x.min()] * 4, inner, [x.max()] * 4]
    return BSpline.design_matrix(x, knots, 3).toarray()[:, 1:]


def _grid(rows, columns):
    """Return which areas of a map are neighbors."""
    row, column = (x.ravel() for x in np.indices((rows, columns)))
    return (np.abs(row[:, None] - row) + np.abs(column[:, None] - column) == 1).astype(float)


@in_gallery
def hsgp(rng):
    """PyMC notebook "Gaussian Processes: HSGP Reference & First Steps": 300 rows, 25 basis functions."""
    x = np.sort(rng.uniform(0, 10, 300))
    cov = pm.Exponential("eta", 1.0) ** 2 * pm.gp.cov.Matern52(1, ls=pm.InverseGamma("ell", 5, 5))
    f = pm.gp.HSGP(m=[25], c=1.5, cov_func=cov).prior("f", X=x[:, None])
    y = np.sin(x) + 0.3 * rng.normal(size=300)
    pm.Normal("y", mu=f, sigma=pm.Exponential("sigma", 1.0), observed=y)


@in_gallery
def hsgp_counts(rng):
    """PyMC notebook "Gaussian Processes: HSGP Advanced Usage", as counts: 300 weeks, with a seasonal effect."""
    week = np.arange(300)
    cov = pm.HalfNormal("eta") ** 2 * pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("ell", 3, 0.5))
    f = pm.gp.HSGP(m=[20], c=1.5, cov_func=cov).prior("f", X=week[:, None] * 1.0)
    season = pm.ZeroSumNormal("season", sigma=0.5, shape=52)[week % 52]
    log_rate = pm.Normal("level", 2, 1) + f + season
    pm.Poisson("cases", pt.exp(log_rate), observed=rng.poisson(8, 300))


@in_gallery
def hsgp_of_two_dimensions(rng):
    """PyMC, `pm.gp.HSGP` of two coordinates: counts at 800 places, 24 x 24 basis functions (Riutort-Mayol et al. 2023)."""
    rows = 800
    places = rng.uniform(-1, 1, size=(rows, 2))
    cov = pm.HalfNormal("eta") ** 2 * pm.gp.cov.ExpQuad(2, ls=pm.InverseGamma("ls", 5, 2, shape=2))
    f = pm.gp.HSGP(m=[24, 24], c=1.3, cov_func=cov).prior("f", X=places)
    pm.Poisson("count", pt.exp(pm.Normal("level") + f), observed=rng.poisson(3, rows))


@in_gallery
def spline_by_bambi(rng):
    """Bambi, notebook "Regression splines": `doy ~ bs(year, df=15)`, 827 years of cherry blossoms."""
    year = np.sort(rng.choice(np.arange(812, 2016), 827, replace=False)).astype(float)
    basis = _cubic_basis(year, 15)
    centered = basis - basis.mean(axis=0)
    mu = pm.Normal("Intercept", 105, 15) + centered @ pm.Normal("bs", 0, 20, shape=15)
    pm.Normal("doy", mu, pm.HalfStudentT("sigma", nu=4, sigma=6), observed=rng.normal(105, 6, 827))


@in_gallery
def spline_by_group(rng):
    """Bambi, `log(count) ~ bs(temperature, df=8):weekend + (1|station)`: 3 000 hours of bicycle hire."""
    rows, columns, stations = 3000, 8, 25
    temperature = rng.uniform(-5, 35, rows).round(0)
    weekend, station = rng.integers(0, 2, rows), rng.integers(0, stations, rows)
    basis = _cubic_basis(temperature, columns)
    weights = pm.Normal("weights", 0, 1, shape=(2, columns))
    smooth = (basis * weights[weekend]).sum(axis=1)
    level = pm.Normal("level", 3, pm.HalfNormal("s"), shape=stations)[station]
    alpha = pm.Exponential("alpha", 1.0)
    y = rng.negative_binomial(3, 0.1, rows)
    pm.NegativeBinomial("count", mu=pt.exp(level + smooth), alpha=alpha, observed=y)


@in_gallery
def spline_columns(rng):
    """patsy, `count ~ bs(hour, df=40) + temperature`: a basis of 40 splines, 4 of them nonzero in a row (Eilers and Marx 1996)."""
    rows = 2000
    basis = _cubic_basis(np.sort(rng.uniform(0, 24, rows)), 40)
    design = np.column_stack([basis, rng.normal(size=rows)])
    eta = pm.Normal("Intercept") + design @ pm.Normal("beta", 0, 0.5, shape=design.shape[1])
    pm.Poisson("count", pm.math.exp(eta), observed=rng.poisson(3, rows))


@in_gallery
def icar_counts(rng):
    """Besag 1974, PyMC reference of `ICAR`: counts in 15 x 15 areas."""
    W = _grid(15, 15)
    phi = pm.ICAR("phi", W=W) * pm.HalfNormal("sigma")
    x, expected = rng.normal(size=225), rng.gamma(5, 2, 225)
    eta = pm.Normal("b0") + pm.Normal("b1") * x + phi
    pm.Poisson("cases", expected * pt.exp(eta), observed=rng.poisson(expected))


@in_gallery
def bym_by_area(rng):
    """Riebler et al. 2016, PyMC notebook "BYM model": 400 areas, ten years, area and year effects."""
    W, years = _grid(20, 20), 10
    area, year = (x.ravel() for x in np.indices((400, years)))
    rho, sigma = pm.Beta("rho", 0.5, 0.5), pm.HalfNormal("sigma")
    theta, phi = pm.Normal("theta", shape=400), pm.ICAR("phi", W=W)
    spatial = sigma * (pt.sqrt(1 - rho) * theta + pt.sqrt(rho / 0.6) * phi)
    yearly = pm.GaussianRandomWalk("yearly", 0, 0.1, init_dist=pm.Normal.dist(0, 1), steps=9)
    expected = rng.gamma(5, 2, 400)[area]
    eta = spatial[area] + yearly[year] + np.log(expected)
    pm.Poisson("cases", pt.exp(eta), observed=rng.poisson(expected))
