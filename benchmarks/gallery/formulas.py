"""Regressions by formula: factors, interactions and nested effects as columns of a design matrix."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.gallery.registry import in_gallery


def _dummies(level, n_levels, first=0):
    """Return a column of zeros and ones for each level from ``first`` on."""
    return (level[:, None] == np.arange(first, n_levels)).astype(float)


def _products(first, second):
    """Return the products of all pairs of columns, as ``a:b`` of a formula."""
    return (first[:, :, None] * second[:, None, :]).reshape(len(first), -1)


@in_gallery
def dummies_and_covariates(rng):
    """`pandas.get_dummies`: `switched ~ 0 + well + arsenic + distance + education`, 120 wells (Gelman and Hill 2007, chapter 5)."""
    rows, wells = 3000, 120
    design = np.column_stack(
        [_dummies(rng.integers(0, wells, rows), wells), rng.normal(size=(rows, 3))]
    )
    eta = pm.math.dot(design, pm.Normal("beta", 0, 1, shape=design.shape[1]))
    pm.Bernoulli("switched", logit_p=eta, observed=rng.integers(0, 2, rows))


@in_gallery
def nested_dummies(rng):
    """R, `score ~ district/school + ses`: schools within districts as dummies (Pinheiro and Bates 2000, chapter 1)."""
    rows, districts, schools = 3000, 12, 10
    district, school = rng.integers(0, districts, rows), rng.integers(0, schools, rows)
    of_district = _dummies(district, districts, first=1)
    of_school = _dummies(school + schools * district, districts * schools)
    of_school = of_school[:, np.arange(districts * schools) % schools > 0]
    ses = rng.normal(size=rows)
    design = np.column_stack([np.ones(rows), of_district, of_school, ses])
    mu = design @ pm.Normal("beta", 0, 1, shape=design.shape[1])
    nu, sigma = pm.Gamma("nu", 2, 0.1), pm.HalfNormal("sigma")
    pm.StudentT("score", nu, mu=mu, sigma=sigma, observed=rng.standard_t(4, rows))


@in_gallery
def interaction_dummies(rng):
    """patsy, `claims ~ C(age) * C(area) + log(value)`: a tariff with interactions (Frees 2010, chapter 12)."""
    rows, ages, areas = 4000, 8, 15
    age = _dummies(rng.integers(0, ages, rows), ages, first=1)
    area = _dummies(rng.integers(0, areas, rows), areas, first=1)
    value = rng.normal(size=rows)
    design = np.column_stack([np.ones(rows), age, area, _products(age, area), value])
    mu = pm.math.exp(design @ pm.Normal("beta", 0, 0.3, shape=design.shape[1]))
    pm.Poisson("claims", mu, observed=rng.poisson(1, rows))


@in_gallery
def slopes_of_dummies(rng):
    """patsy, `days ~ 0 + C(subject) + C(subject):dose`: a slope for each of 40 subjects as columns (Fitzmaurice et al. 2011, chapter 8)."""
    rows, subjects = 1200, 40
    subject = _dummies(rng.integers(0, subjects, rows), subjects)
    dose = rng.normal(size=(rows, 1))
    design = np.column_stack([subject, subject * dose])
    eta = design @ pm.Normal("beta", 0, 0.5, shape=design.shape[1])
    alpha = pm.Exponential("alpha", 1)
    pm.NegativeBinomial("days", mu=pm.math.exp(eta), alpha=alpha, observed=rng.poisson(2, rows))


@in_gallery
def centered_dummies(rng):
    """Bambi, `rating ~ product + price`: ordered answers, whose dummies Bambi centers (Bürkner and Vuorre 2019)."""
    rows, products = 1500, 30
    design = np.column_stack(
        [_dummies(rng.integers(0, products, rows), products, first=1), rng.normal(size=rows)]
    )
    eta = (design - design.mean(axis=0)) @ pm.Normal("beta", 0, 1, shape=design.shape[1])
    cuts = pm.Normal(
        "cuts",
        np.arange(4.0),
        1,
        transform=pm.distributions.transforms.ordered,
        initval=np.arange(4.0),
    )
    pm.OrderedLogistic("rating", eta=eta, cutpoints=cuts, observed=rng.integers(0, 5, rows))


@in_gallery
def multinomial_dummies(rng):
    """R, `multinom(brand ~ region + age)`: a matrix of coefficients for the columns of dummies (Venables and Ripley 2002, chapter 7)."""
    rows, regions, brands = 2000, 25, 4
    design = np.column_stack(
        [_dummies(rng.integers(0, regions, rows), regions), rng.normal(size=(rows, 2))]
    )
    free = pm.Normal("beta", 0, 0.5, shape=(design.shape[1], brands - 1))
    eta = pt.concatenate([np.zeros((rows, 1)), pt.dot(design, free)], axis=1)
    pm.Categorical("brand", p=pm.math.softmax(eta, axis=1), observed=rng.integers(0, brands, rows))


@in_gallery
def dummies_of_a_normal(rng):
    """statsmodels, `log_radon ~ 0 + C(county) + floor + uranium`: radon with counties as dummies (Gelman and Hill 2007, chapter 12)."""
    rows, counties = 919, 85
    floor, uranium = rng.integers(0, 2, rows), rng.normal(size=rows)
    design = np.column_stack([_dummies(rng.integers(0, counties, rows), counties), floor, uranium])
    mu = design @ pm.Normal("beta", 0, 1, shape=design.shape[1])
    pm.Normal("log_radon", mu, pm.HalfNormal("sigma"), observed=rng.normal(size=rows))


@in_gallery
def dummies_of_varying_scale(rng):
    """brms, `bf(yield ~ variety + block + rain, sigma ~ rain)`: crossed factors, and a scale of its own for each row (Bürkner 2018)."""
    rows, varieties, blocks = 800, 25, 16
    rain = rng.normal(size=rows)
    variety = _dummies(rng.integers(0, varieties, rows), varieties)
    block = _dummies(rng.integers(0, blocks, rows), blocks, first=1)
    design = np.column_stack([variety, block, rain])
    mu = design @ pm.Normal("beta", 0, 1, shape=design.shape[1])
    sigma = pm.math.exp(pm.Normal("sigma_0") + pm.Normal("sigma_rain") * rain)
    pm.Normal("yield", mu, sigma, observed=rng.normal(size=rows))
