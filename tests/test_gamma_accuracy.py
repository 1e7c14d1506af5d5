"""Likelihoods whose Gamma functions cancel, by group, against mpmath: accurate also where upstream has no correct digit."""

import mpmath as mp
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_fastlogp.config import switched
from tests.fuzz.evaluation import by_kernels
from tests.rewrites.conftest import PYTHON, pregrad

EPS = np.finfo("float64").eps
GROUPS, ROWS = 2, 24
# Of the logarithms of the parameters; upstream has lost all digits from about 35 on.
SIZES = [-30.0, -5.0, 0.0, 5.0, 10.0, 20.0, 30.0, 38.0]
rng = np.random.default_rng(3)
group = np.arange(ROWS) % GROUPS
y = rng.integers(0, 9, ROWS)
n = y + rng.integers(0, 7, ROWS)
x = rng.normal(size=ROWS).round(1)
table = rng.multinomial(12, [0.2, 0.3, 0.5], size=8)


def rise(a, k):
    return mp.loggamma(a + k) - mp.loggamma(a)


class BetaBinomial:
    n_parameters = 2 * GROUPS

    def model(self, log_a):
        a = pt.exp(log_a)
        pm.BetaBinomial("y", n=n, alpha=a[group], beta=a[GROUPS + group], observed=y)

    def exact(self, a):
        for g, y_i, n_i in zip(group.tolist(), y.tolist(), n.tolist()):
            alpha, beta = a[g], a[GROUPS + g]
            chosen = mp.log(mp.binomial(n_i, y_i))
            yield chosen + rise(alpha, y_i) + rise(beta, n_i - y_i) - rise(alpha + beta, n_i)


class NegativeBinomial:
    n_parameters = GROUPS
    # As a float64: of what is written as 3.5, PyMC takes the logarithm in single precision.
    rate = 3.5

    def model(self, log_a):
        pm.NegativeBinomial("y", mu=np.float64(self.rate), alpha=pt.exp(log_a)[group], observed=y)

    def exact(self, a):
        for g, y_i in zip(group.tolist(), y.tolist()):
            rest = y_i * mp.log(self.rate) - mp.loggamma(y_i + 1)
            if a[g] > 1e10:  # PyMC takes a Poisson distribution
                yield rest - self.rate
            else:
                spread = (a[g] + y_i) * mp.log1p(self.rate / a[g]) + y_i * mp.log(a[g])
                yield rest + rise(a[g], y_i) - spread


class StudentT:
    n_parameters = GROUPS

    def model(self, log_nu):
        pm.StudentT("y", nu=pt.exp(log_nu)[group], mu=0.0, sigma=1.0, observed=x)

    def exact(self, nu):
        half = mp.mpf(1) / 2
        for g, x_i in zip(group.tolist(), x.tolist()):
            square = (nu[g] + 1) / 2 * mp.log1p(mp.mpf(x_i) ** 2 / nu[g])
            yield rise(nu[g] / 2, half) - mp.log(nu[g] * mp.pi) / 2 - square


class DirichletMultinomial:
    n_parameters = 3

    def model(self, log_a):
        pm.DirichletMultinomial("y", n=12, a=pt.exp(log_a), observed=table)

    def exact(self, a):
        for counts in table.tolist():
            yield mp.loggamma(13) - rise(mp.fsum(a), 12)
            for a_k, count in zip(a, counts):
                yield rise(a_k, count) - mp.loggamma(count + 1)


class PoissonGamma:
    """Written out, with a rate of 0.5, which adds nothing that is much larger than the counts."""

    n_parameters = GROUPS

    def model(self, log_a):
        a = pt.exp(log_a)[group]
        rows = pt.gammaln(y + a) - pt.gammaln(a) - pt.gammaln(y + 1.0) - y * 0.5
        pm.Potential("y", rows.sum())

    def exact(self, a):
        for g, y_i in zip(group.tolist(), y.tolist()):
            yield rise(a[g], y_i) - mp.loggamma(y_i + 1) - y_i * mp.mpf(0.5)


CASES = [BetaBinomial(), NegativeBinomial(), StudentT(), DirichletMultinomial(), PoissonGamma()]


def logp_dlogp(case, *, on, mode):
    """Return the function of all logarithms that has value and gradient."""
    with pm.Model() as model:
        case.model(pm.Flat("log", shape=case.n_parameters))
    logp = pregrad(model.logp(), on=on)
    with switched(on):
        [value] = model.value_vars
        return pytensor.function([value], [logp, pytensor.grad(logp, value)], mode=mode)


def exact(case, log_a):
    """Return value and gradient, that by central differences with 20 digits to spare."""

    def value(log_a):
        return mp.fsum(case.exact([mp.exp(z) for z in log_a]))

    at, step = np.array([mp.mpf(float(z)) for z in log_a]), mp.mpf(10) ** -20
    steps = step * np.eye(len(at), dtype=int)
    return value(at), [(value(at + e) - value(at - e)) / (2 * step) for e in steps]


def errors(function, log_a, value, gradient):
    found, slopes = function(log_a)
    return np.array([float(abs(found - value)), max(map(float, abs(slopes - gradient)))])


@pytest.mark.parametrize("case", CASES, ids=lambda case: type(case).__name__)
def test_error_is_bounded_by_upstreams_and_by_round_off(case):
    upstream = logp_dlogp(case, on=False, mode=PYTHON)
    ours = logp_dlogp(case, on=True, mode=by_kernels())
    count = int(n.sum()) + ROWS
    with mp.workdps(60):
        for size in SIZES:
            log_a = size + np.linspace(0, 0.3, case.n_parameters)
            value, gradient = exact(case, log_a)
            of_upstream = errors(upstream, log_a, value, np.array(gradient))
            of_ours = errors(ours, log_a, value, np.array(gradient))
            # Each of the counts multiplies a logarithm of this size, whose rounding nothing undoes.
            floor = EPS * count * np.array([abs(size) + 3, 1])
            assert np.all(of_ours <= floor), size
            assert np.all(of_ours <= np.maximum(4 * of_upstream, floor / 2)), size
        # PyMC's negative binomial is a Poisson distribution there.
        assert of_upstream[0] > 1 or isinstance(case, NegativeBinomial)
