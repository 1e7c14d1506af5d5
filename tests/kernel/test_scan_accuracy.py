"""The digits of recursions: logp and gradient against 40 digits, no worse than PyTensor's own code."""

import mpmath
import numpy as np
import pymc as pm
import pytest

from benchmarks import gallery
from pymc_fastlogp.kernel.graph.op import FusedKernel
from tests.fuzz.evaluation import by_kernels
from tests.kernel.lowering import evaluated

DIGITS = 40
# Where the gradient of so many digits is taken by differences: half of them are left.
STEP = mpmath.mpf(10) ** -13


def normal(x, mean, sigma):
    """Return the log density of a normal."""
    return -(((x - mean) / sigma) ** 2) / 2 - mpmath.log(sigma) - mpmath.log(2 * mpmath.pi) / 2


def half_normal(log_sigma):
    """Return the log density of the logarithm of a half-normal of scale 1."""
    return normal(mpmath.exp(log_sigma), 0, 1) + mpmath.log(2) + log_sigma


def ar2_latent(point, y):
    """Return the log density of the model of the gallery."""
    phi, log_sigma, innovation = point[:2], point[2], point[3:]
    total = sum(normal(p, 0, mpmath.mpf(0.4)) for p in phi) + half_normal(log_sigma)
    s2 = s1 = mpmath.mpf(0)
    for e, seen in zip(innovation, y, strict=True):
        s2, s1 = s1, phi[0] * s1 + phi[1] * s2 + mpmath.exp(log_sigma) * e
        total += normal(e, 0, 1) + normal(seen, s1, mpmath.mpf(0.4))
    return total


def garch_1_1(point, y):
    """Return the log likelihood of the model of the gallery; upstream has constants of its priors in single precision."""
    mu, log_omega, logit_alpha, logit_beta = point
    alpha, beta = (1 / (1 + mpmath.exp(-x)) for x in (logit_alpha, logit_beta))
    total = mpmath.mpf(0)
    variance = mpmath.mpf(float(np.var(np.array(y, float))))
    for t, seen in enumerate(y):
        if t:
            variance = mpmath.exp(log_omega) + alpha * (y[t - 1] - mu) ** 2 + beta * variance
        total += normal(seen, mu, mpmath.sqrt(variance))
    return total


def local_level_filter(point, y):
    """Return the log density of the model of the gallery."""
    noise, walk = (mpmath.exp(2 * x) for x in point)
    total = half_normal(point[0]) + half_normal(point[1])
    mean, variance = mpmath.mpf(0), mpmath.mpf(10)
    for seen in y:
        spread = variance + noise
        total += normal(seen, mean, mpmath.sqrt(spread))
        gain = variance / spread
        mean, variance = mean + gain * (seen - mean), variance * (1 - gain) + walk
    return total


def data_of(name):
    """Return the series of a model as it is simulated."""
    rng = np.random.default_rng(30)
    match name:
        case "ar2_latent":
            return gallery.recursions.autoregression(rng, 0.5, 0.2, steps=200)
        case "garch_1_1":
            level = gallery.recursions.autoregression(rng, 0.8, steps=500)
            return rng.normal(0, np.exp(0.3 * level))
        case _:
            return np.cumsum(0.3 * rng.normal(size=200)) + rng.normal(size=200)


def error_of(found, exact):
    """Return the error relative to the largest number."""
    scale = max(abs(x) for x in exact)
    return float(
        max(abs(mpmath.mpf(float(a)) - b) for a, b in zip(found, exact, strict=True)) / scale
    )


@pytest.mark.parametrize(
    "logp", [ar2_latent, garch_1_1, local_level_filter], ids=lambda f: f.__name__
)
def test_digits(logp):
    name = logp.__name__
    model, y = gallery.make(name), [mpmath.mpf(float(v)) for v in data_of(name)]
    random = np.random.default_rng(2)
    point = {x.name: random.uniform(-0.8, 0.8, size=x.type.shape) for x in model.value_vars}
    # The gradient with respect to the first few; the others are alike.
    free = list(model.value_vars)
    of = model.observed_RVs if name == "garch_1_1" else None
    cost = model.logp(of)
    inputs, outputs = free, [cost, pm.pytensorf.gradient(cost, free)]
    function = pm.compile(inputs, outputs, mode=by_kernels())
    assert any(isinstance(n.op, FusedKernel) for n in function.maker.fgraph.apply_nodes)
    arrays = [point[x.name] for x in free]
    flat = np.concatenate([np.ravel(a) for a in arrays])
    with mpmath.workdps(DIGITS):
        at = [mpmath.mpf(float(v)) for v in flat]
        value = logp(at, y)
        slopes = []
        for k in range(min(len(at), 6)):
            up, down = list(at), list(at)
            up[k], down[k] = up[k] + STEP, down[k] - STEP
            slopes.append((logp(up, y) - logp(down, y)) / (2 * STEP))
        found = function(*arrays)
        upstream = evaluated(inputs, outputs, arrays)
        for each, limit in ((found, 4e-15), (upstream, 1e-13)):
            assert error_of([each[0]], [value]) < limit
            assert error_of(each[1][: len(slopes)], slopes) < 10 * limit
