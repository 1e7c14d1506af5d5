"""LKJ priors at extreme correlations and scales are as accurate as upstream, against mpmath.

The edges: correlations of 0.999999, standard deviations of 1e-8 beside others of 1e8, 30 variables, eta from
0.1 to 100. An error is measured in units of the last place of what was added up: of the sum of the
absolute terms of logp, or of a gradient's entry.
"""

import mpmath as mp
import numpy as np
import pymc as pm
import pytensor
import pytest

from pymc_fastlogp.config import switched
from tests.fuzz.evaluation import by_kernels
from tests.rewrites.conftest import PYTHON, pregrad

OF_FACTOR = tuple(map(int, pm.__version__.split(".")[:2])) >= (6, 4)

CORRELATION = 0.999999
DIGITS = 60

# No error may be larger than this, in those units, nor than this multiple of upstream's largest (if that is above one).
ULPS = 8.0
FACTOR = 3.0


class Terms:
    """A sum that remembers how large its terms were."""

    def __init__(self):
        self.value, self.size = mp.mpf(0), mp.mpf(0)

    def add(self, *terms):
        for term in terms:
            self.value += term
            self.size += abs(term)


def log_normalizer(eta, n):
    """Return the constant of the LKJ density as PyMC folds it, which differs from version to version."""
    with switched(False):
        return float(
            pm.distributions.multivariate._lkj_normalizing_constant(float(eta), n).eval(mode=PYTHON)
        )


def spiral_rows(x, n):
    """Return the strictly lower triangle of ``CholeskyCorrTransform``, by rows, as positions in ``x``."""
    order = np.arange(len(x))
    square = np.concatenate([order[n - 1 :], order[::-1]]).reshape(n - 1, n - 1)
    return [square[i, : i + 1] for i in range(n - 1)]


def lkj_corr(x, n, eta):
    """Return logp and gradient of ``LKJCorr`` on the unconstrained scale, each as terms.

    With s the squared norms of the rows, whose diagonal is one before they are divided, the diagonal is
    s ** (-1/2), with exponent 2 eta - 2 + n - i in the density and i + 1 in the Jacobian, i = 1, .., n. PyMC
    6.3 had the density of the correlation matrix, 2 eta - 2, in its place.
    """
    logp, gradient = Terms(), [Terms() for _ in x]
    logp.add(log_normalizer(eta, n))
    for i, row in enumerate(spiral_rows(x, n), start=2):
        exponent = 2 * eta - 2 + (n - i if OF_FACTOR else 0) + (i + 1)
        square = 1 + sum(x[k] ** 2 for k in row)
        logp.add(-exponent * mp.log(square) / 2)
        for k in row:
            gradient[k].add(-exponent * x[k] / square)
    return logp, gradient


def lkj_cholesky_cov(x, n, eta):
    """Return logp and gradient of ``LKJCholeskyCov``, sd ~ Exponential(1), packed, log diagonal."""
    logp, gradient = Terms(), [Terms() for _ in x]
    logp.add(log_normalizer(eta, n))
    for i in range(n):
        row = range(i * (i + 1) // 2, (i + 1) * (i + 2) // 2)
        log_diag = x[row[-1]]
        values = [*(x[k] for k in row[:-1]), mp.exp(log_diag)]
        square = sum(v**2 for v in values)
        sd = mp.sqrt(square)
        # log(diagonal / sd) ** (2 eta - 3 + n - i + 1), sd ** (-i), exp(-sd), Jacobian of the log
        exponent = 2 * eta - 2 + n - i
        logp.add(exponent * log_diag, -(exponent + i) * mp.log(sd), -sd, log_diag)
        for k, v in zip(row, values, strict=True):
            slope = v if k == row[-1] else 1
            gradient[k].add(-(exponent + i) * v / square * slope, -v / sd * slope)
        gradient[row[-1]].add(exponent, 1)
    return logp, gradient


def corr_points(n):
    """Yield rows that are nearly the same, nearly opposite, tiny, and of any size."""
    rng = np.random.default_rng(n)
    size = n * (n - 1) // 2
    large = CORRELATION / np.sqrt(1 - CORRELATION**2)
    nearly_one = 0.1 * rng.normal(size=size)
    for row in spiral_rows(nearly_one, n):
        nearly_one[row[0]] = large
    yield nearly_one
    yield -nearly_one
    yield 1e-8 * rng.normal(size=size)
    yield rng.normal(size=size) * 10.0 ** rng.uniform(-8, 8, size=size)


def cov_points(n):
    """Yield factors with correlations near one and scales of 1e8 and 1e-8 by turns."""
    rng = np.random.default_rng(n)
    rows, cols = np.tril_indices(n)
    for scales in ([1e8, 1e-8], [1e-8, 1e8], [1e-8, 1e-8], [1.0, 1.0]):
        triangle = np.tril(1e-4 * rng.normal(size=(n, n)), -1)
        triangle[1:, 0] = CORRELATION
        triangle[0, 0] = 1.0
        rest = 1 - (triangle[1:] ** 2).sum(axis=1)
        triangle[np.arange(1, n), np.arange(1, n)] = np.sqrt(np.abs(rest))
        triangle *= np.resize(scales, n)[:, None]
        x = triangle[rows, cols]
        x[rows == cols] = np.log(x[rows == cols])
        yield x


def make_lkj_corr(n, eta):
    with pm.Model() as model:
        pm.LKJCorr("L", n=n, eta=eta)
    return model


def make_lkj_cholesky_cov(n, eta):
    with pm.Model() as model:
        pm.LKJCholeskyCov("L", n=n, eta=eta, sd_dist=pm.Exponential.dist(1.0, shape=n))
    return model


MODELS = {
    "LKJCorr": (make_lkj_corr, lkj_corr, corr_points),
    "LKJCholeskyCov": (make_lkj_cholesky_cov, lkj_cholesky_cov, cov_points),
}
CASES = [(name, n, eta) for name in MODELS for n, eta in ((2, 0.1), (30, 0.1), (30, 100.0))]


def upstream(model):
    """Return logp and gradient without the plugin, operation by operation in NumPy."""
    [x] = model.continuous_value_vars
    logp = pregrad(model.logp(), on=False)
    function = pytensor.function([x], [logp, pytensor.grad(logp, x)], mode=PYTHON)

    def evaluate(at):
        with np.errstate(all="ignore"):
            return np.hstack(function(at))

    return evaluate


def plugin(model):
    """Return logp and gradient as users get them, by the kernel."""
    with switched(True):
        function = model.logp_dlogp_function(ravel_inputs=True, mode=by_kernels())
    function.set_extra_values({})
    return lambda at: np.hstack(function(at))


def errors_in_ulps(found, exact):
    """Return errors in units of the last place of the absolute terms; inf for what is not a number."""
    logp, gradient = exact
    errors = [
        abs(mp.mpf(float(value)) - terms.value) / terms.size / np.finfo(float).eps
        if np.isfinite(value)
        else np.inf
        for value, terms in zip(found, [logp, *gradient], strict=True)
    ]
    return np.array(errors, dtype=float)


@pytest.mark.parametrize(("name", "n", "eta"), CASES)
def test_edges_are_as_accurate_as_upstream(name, n, eta):
    make, reference, points = MODELS[name]
    sides = upstream(make(n, eta)), plugin(make(n, eta))
    for at in points(n):
        with mp.workdps(DIGITS):
            exact = reference([mp.mpf(float(v)) for v in at], n, mp.mpf(eta))
            off, on = (errors_in_ulps(side(at), exact) for side in sides)
        assert on.max() <= ULPS
        assert on.max() <= FACTOR * max(1.0, off.max())
