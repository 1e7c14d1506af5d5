"""Models of many rows, with kernels, against extended precision: 12 digits of logp, 10 of each gradient entry.

A digit is one of the sum of the absolute terms, since that is what a sum can be right to. Parameters are dyadic, so that
linear predictors are exact in double precision also where they have an offset of a million.
"""

import numpy as np
import pymc as pm
import pytest
from mpmath import mp
from pymc.model.transform.optimization import freeze_dims_and_data

from pymc_fastlogp.config import switched
from pymc_fastlogp.decisions import collected
from tests.fuzz.evaluation import by_kernels

pytestmark = pytest.mark.skipif(
    np.finfo(np.longdouble).eps > 1e-18, reason="no extended precision here"
)

ROWS = 20_000
# As a float64: of what is written as 4 or 4.0, PyMC takes gammaln in single precision.
NU = 4


class Rows:
    """Group, covariate and linear predictor of each row, and the parameters that give it.

    Attributes
    ----------
    group, x : numpy.ndarray
        Of shape ``(n,)``.
    a, b, log_scale : numpy.ndarray
        Of shapes ``(n_groups,)``, ``()`` and ``()``.
    eta : numpy.ndarray
        Of shape ``(n,)`` and dtype longdouble.
    """

    def __init__(self, group, x, *, n_groups, offset=0.0, scale=1.0):
        self.rng = np.random.default_rng(7)
        self.group, self.x = group, x
        self.a = offset + scale * self.rng.integers(-16, 16, size=n_groups) / 16
        self.b = np.array(scale * 0.375)
        self.log_scale = np.log(np.array(1.25 * scale))
        self.eta = (self.a.astype(np.longdouble)[group] + self.b * x).astype(np.longdouble)
        self.scale = np.exp(self.log_scale.astype(np.longdouble))

    def noisy(self, levels: int) -> np.ndarray:
        """Return outcomes with rounded noise, so that cells repeat."""
        noise = self.rng.integers(-levels, levels, size=self.group.size) / levels
        return (self.eta + 2 * self.scale * noise).astype(float)


def rows(case: str, n: int = ROWS) -> Rows:
    rng = np.random.default_rng(3)
    two = rng.integers(0, 2, n).astype(float)
    unbalanced = np.minimum(rng.geometric(0.5, n) - 1, 11)
    with_empty = rng.choice([0, 1, 1, 5], n)
    with_empty[7] = 3
    scale = 2.0**-20  # about 1e-6, and exact
    return {
        "unbalanced": lambda: Rows(unbalanced, two, n_groups=12),
        "empty groups": lambda: Rows(with_empty, two, n_groups=9),
        "a single group": lambda: Rows(np.zeros(n, dtype=int), two, n_groups=1),
        "constant covariate": lambda: Rows(unbalanced, np.full(n, 3.0), n_groups=12),
        "offset": lambda: Rows(unbalanced, two, n_groups=12, offset=1e6),
        "small scale": lambda: Rows(unbalanced, two, n_groups=12, scale=scale),
    }[case]()


def log_factorial(y: np.ndarray) -> np.ndarray:
    return np.append(0, np.cumsum(np.log(np.arange(1, y.max() + 1, dtype=np.longdouble))))[y]


def extended(x) -> np.longdouble:
    return np.longdouble(mp.nstr(x, 25))


class Poisson:
    cases = ("unbalanced", "empty groups", "a single group", "constant covariate", "small scale")

    def observed(self, r):
        return r.rng.poisson(np.exp(r.eta.astype(float)))

    def model(self, eta, scale, y):
        pm.Poisson("y", pm.math.exp(eta), observed=y)

    def terms(self, r, y):
        """Return logp of each row, and its derivatives by eta and by the logarithm of the scale."""
        mu = np.exp(r.eta)
        return y * r.eta - mu - log_factorial(y), y - mu, 0 * mu


class Bernoulli:
    cases = Poisson.cases

    def observed(self, r):
        return r.rng.random(r.eta.size) < 1 / (1 + np.exp(-r.eta.astype(float)))

    def model(self, eta, scale, y):
        pm.Bernoulli("y", logit_p=eta, observed=y)

    def terms(self, r, y):
        signed = np.where(y, r.eta, -r.eta)
        odds = np.exp(-signed)
        return -np.log1p(odds), np.where(y, 1, -1) * odds / (1 + odds), 0 * odds


class NegativeBinomial:
    cases = Poisson.cases

    def observed(self, r):
        return r.rng.poisson(r.rng.gamma(2, np.exp(r.eta.astype(float)) / 2))

    def model(self, eta, scale, y):
        pm.NegativeBinomial("y", mu=pm.math.exp(eta), alpha=scale, observed=y)

    def terms(self, r, y):
        mu, alpha = np.exp(r.eta), r.scale
        rising = alpha + np.arange(y.max() + 1, dtype=np.longdouble)
        log_rising, inverse = (
            np.append(0, np.cumsum(terms))[y] for terms in (np.log(rising), 1 / rising)
        )
        of_mean = y * (r.eta - np.log(alpha + mu)) - alpha * np.log1p(mu / alpha)
        by_alpha = inverse - np.log1p(mu / alpha) + (mu - y) / (alpha + mu)
        logp = log_rising - log_factorial(y) + of_mean
        return logp, alpha * (y - mu) / (alpha + mu), alpha * by_alpha


class StudentT:
    cases = (*Poisson.cases, "offset")

    def observed(self, r):
        return r.noisy(8)

    def model(self, eta, scale, y):
        pm.StudentT("y", nu=np.float64(NU), mu=eta, sigma=scale, observed=y)

    def terms(self, r, y):
        z = (y - r.eta) / r.scale
        constant = mp.loggamma((NU + 1) / 2) - mp.loggamma(NU / 2) - mp.log(NU * mp.pi) / 2
        logp = extended(constant) - np.log(r.scale) - (NU + 1) / 2 * np.log1p(z**2 / NU)
        by_eta = (NU + 1) * z / (NU + z**2) / r.scale
        return logp, by_eta, by_eta * z * r.scale - 1


class Normal:
    cases = StudentT.cases

    def observed(self, r):
        return r.eta.astype(float) + r.scale.astype(float) * r.rng.normal(size=r.eta.size)

    def model(self, eta, scale, y):
        pm.Normal("y", eta, scale, observed=y)

    def terms(self, r, y):
        z = (y - r.eta) / r.scale
        return -(z**2 + extended(mp.log(2 * mp.pi))) / 2 - np.log(r.scale), z / r.scale, z**2 - 1


FAMILIES = {
    kind.__name__: kind() for kind in (Poisson, Bernoulli, NegativeBinomial, StudentT, Normal)
}


def logp_dlogp(family, r: Rows, y: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
    """Evaluate a model without priors, in which the plugin must have found fewer rows."""
    with pm.Model() as model:
        a, b = pm.Flat("a", shape=r.a.shape), pm.Flat("b")
        log_scale = pm.Flat("log_scale")
        family.model(a[r.group] + b * r.x, pm.math.exp(log_scale), y)
    frozen = freeze_dims_and_data(model)
    with switched(True), collected() as decisions:
        function = frozen.logp_dlogp_function(ravel_inputs=True, mode=by_kernels())
    assert any(d.rows_after and d.rows_after < r.group.size / 10 for d in decisions)
    function.set_extra_values({})
    at = {v.name: np.atleast_1d(getattr(r, v.name)) for v in frozen.continuous_value_vars}
    logp, gradient = function(np.concatenate([*at.values()]))
    stops = np.cumsum([len(value) for value in at.values()])
    return float(logp), dict(zip(at, np.split(gradient, stops[:-1])))


def assert_digits(family, r: Rows):
    y = family.observed(r)
    logp, gradient = logp_dlogp(family, r, y)
    of_rows, by_eta, by_scale = family.terms(r, y)
    assert abs(logp - of_rows.sum()) <= 1e-12 * np.abs(of_rows).sum()
    one = np.zeros_like(r.group)
    parts = {"a": (by_eta, r.group), "b": (by_eta * r.x, one), "log_scale": (by_scale, one)}
    for name, (terms, index) in parts.items():
        exact, size = np.zeros((2, len(gradient[name])), dtype=np.longdouble)
        np.add.at(exact, index, terms)
        np.add.at(size, index, np.abs(terms))
        assert (np.abs(gradient[name] - exact) <= 1e-10 * size).all(), name


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name, kind in FAMILIES.items() for case in kind.cases]
)
def test_digits(name, case):
    assert_digits(FAMILIES[name], rows(case))


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_digits_of_ten_million_rows(name):
    assert_digits(FAMILIES[name], rows("unbalanced", 10_000_000))
