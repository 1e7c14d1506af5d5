"""Forms of ``gammaln(a + k) - gammaln(a)`` that the rule refuses lose no more digits than upstream, against mpmath."""

from collections.abc import Callable
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.tensor.special import gammaln

from pymc_fastlogp.config import switched
from tests.fuzz.evaluation import off_in_numpy, on_by_kernels

N, GROUPS = 100, 5
RNG = np.random.default_rng(0)
GROUP = RNG.integers(0, GROUPS, N)
COUNTS = RNG.poisson(3, N).astype("float64")
QUARTERS = np.full(N, 0.25)
EPS = np.finfo("float64").eps
EACH = np.arange(N)
# By name: how many entries of `a`, which of them each row reads, `k`, and `a` as a function of the input.
FORMS: dict[str, tuple[int, np.ndarray, np.ndarray, Callable[[Any], Any]]] = {
    "an entry for each row": (N, EACH, COUNTS, pt.exp),
    "a without bounds": (GROUPS, GROUP, COUNTS, lambda x: x),
    "k below one half": (GROUPS, GROUP, QUARTERS, pt.exp),
    "some k below one half": (GROUPS, GROUP, np.where(COUNTS > 2, COUNTS, 0.3), pt.exp),
}


@cache
def side(name, on):
    """Return the function of value and gradient, rewritten as PyMC does with a log density."""
    length, rows, k, a_of = FORMS[name]
    with switched(on):
        x = pt.vector(shape=(length,))
        a = a_of(x)
        total = (gammaln(a[rows] + k) - gammaln(a[rows])).sum()
        total = rewrite_graph(total, include=["canonicalize", "stabilize"])
        return (on_by_kernels if on else off_in_numpy)([x], [total, pt.grad(total, x)])


def errors(name, points, exact, *, on):
    """Return the largest errors of value and gradient of one side, relative where they are larger than 1."""
    found = [side(name, on)(x) for x in points]
    pairs = list(zip(found, exact, strict=True))
    value = max(abs(float(f[0]) - e[0]) / max(1.0, abs(e[0])) for f, e in pairs)
    slope = max(np.abs(f[1] - e[1]).max() / np.abs(e[1]).max() for f, e in pairs)
    return value, slope


def exactly(name, point):
    """Return value and gradient with 80 digits, rounded."""
    length, rows, k, a_of = FORMS[name]
    value, slopes = mpmath.mpf(0), [mpmath.mpf(0)] * length
    with mpmath.workdps(80):
        for row, step in zip(rows, k, strict=True):
            x, step = mpmath.mpf(float(point[row])), mpmath.mpf(float(step))
            a, chain = (mpmath.exp(x), mpmath.exp(x)) if a_of is pt.exp else (x, mpmath.mpf(1))
            value += mpmath.loggamma(a + step) - mpmath.loggamma(a)
            slopes[row] += chain * (mpmath.psi(0, a + step) - mpmath.psi(0, a))
    return float(value), np.array([float(slope) for slope in slopes])


@pytest.mark.parametrize("exponent", [3, 8, 20])
@pytest.mark.parametrize("name", FORMS)
def test_refused_forms_are_as_accurate_as_upstream(name, exponent):
    length, _, _, a_of = FORMS[name]
    x = exponent + 0.3 * np.random.default_rng(1).normal(size=(3, length))
    x = x if a_of is pt.exp else np.exp(x)
    exact = [exactly(name, point) for point in x]
    off, on = errors(name, x, exact, on=False), errors(name, x, exact, on=True)
    for of_off, of_on in zip(off, on, strict=True):
        assert of_on <= 4 * max(of_off, 8 * EPS)
