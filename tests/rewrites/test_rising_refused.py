"""Refused forms of ``gammaln(a + k) - gammaln(a)`` lose no more digits than upstream, against mpmath."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import mpmath
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.tensor.special import gammaln

from pymc_fastlogp.config import switched
from tests.fuzz.evaluation import off_in_numpy, on_by_kernels

N, GROUPS = 400, 5
RNG = np.random.default_rng(0)
GROUP = RNG.integers(0, GROUPS, N)
COUNTS = RNG.poisson(3, N).astype("float64")
QUARTERS = np.full(N, 0.25)
EACH = np.arange(N)


class Form(NamedTuple):
    """Number of entries of ``a``, the entry that each row reads, ``k``, and ``a`` as a function of the input."""

    length: int
    rows: np.ndarray
    k: np.ndarray
    a_of: Callable[[Any], Any] = pt.exp
    is_constant: bool = True
    dtype: str = "float64"


FORMS = {
    "an entry for each row": Form(N, EACH, COUNTS),
    "a without bounds": Form(GROUPS, GROUP, COUNTS, lambda x: x),
    "k below one half": Form(GROUPS, GROUP, QUARTERS),
    "some k below one half": Form(GROUPS, GROUP, np.where(COUNTS > 2, COUNTS, 0.3)),
    "k not constant": Form(GROUPS, GROUP, COUNTS, is_constant=False),
    "one a, k not constant": Form(1, 0 * GROUP, COUNTS, is_constant=False),
    "a without bounds, k not constant": Form(
        GROUPS, GROUP, COUNTS - 1, lambda x: x, is_constant=False
    ),
    "single precision": Form(GROUPS, GROUP, COUNTS, dtype="float32"),
    "single precision, k not constant": Form(
        GROUPS, GROUP, COUNTS, is_constant=False, dtype="float32"
    ),
}


@cache
def side(name, on):
    """Return the function of value and gradient, rewritten as PyMC does with a log density."""
    form = FORMS[name]
    with switched(on):
        x = pt.tensor(shape=(form.length,), dtype=form.dtype)
        k = pt.tensor(shape=(N,), dtype=form.dtype)
        a = form.a_of(x)[form.rows]
        step = pt.constant(form.k.astype(form.dtype)) if form.is_constant else k
        total = (gammaln(a + step) - gammaln(a)).sum()
        total = rewrite_graph(total, include=["canonicalize", "stabilize"])
        function = (on_by_kernels if on else off_in_numpy)([x, k], [total, pt.grad(total, x)])
        return lambda x: function(x, form.k.astype(form.dtype))


def errors(name, points, exact, *, on):
    """Return the largest errors of value and gradient of one side, relative where they are larger than 1."""
    found = [side(name, on)(x) for x in points]
    pairs = list(zip(found, exact, strict=True))
    value = max(abs(float(f[0]) - e[0]) / max(1.0, abs(e[0])) for f, e in pairs)
    slope = max(np.abs(f[1] - e[1]).max() / np.abs(e[1]).max() for f, e in pairs)
    return value, slope


def exactly(name, point):
    """Return value and gradient with 80 digits, rounded."""
    form = FORMS[name]
    value, slopes = mpmath.mpf(0), [mpmath.mpf(0)] * form.length
    cells, repeats = np.unique(np.stack([form.rows, form.k]), axis=1, return_counts=True)
    with mpmath.workdps(80):
        for (row, step), times in zip(cells.T.tolist(), repeats.tolist(), strict=True):
            row, x, step = int(row), mpmath.mpf(float(point[int(row)])), mpmath.mpf(step)
            a, chain = (mpmath.exp(x), mpmath.exp(x)) if form.a_of is pt.exp else (x, 1)
            value += times * (mpmath.loggamma(a + step) - mpmath.loggamma(a))
            slopes[row] += times * chain * (mpmath.psi(0, a + step) - mpmath.psi(0, a))
    return float(value), np.array([float(slope) for slope in slopes])


@pytest.mark.parametrize("exponent", [-3, 3, 8, 20])
@pytest.mark.parametrize("name", FORMS)
def test_refused_forms_are_as_accurate_as_upstream(name, exponent):
    form = FORMS[name]
    x = exponent + 0.3 * np.random.default_rng(1).normal(size=(3, form.length))
    # A step of -1 from below one leads to where log Gamma is of a negative number.
    x = x if form.a_of is pt.exp else np.exp(x) + (form.k.min() < 0)
    x = x.astype(form.dtype)
    exact = [exactly(name, point) for point in x]
    off, on = errors(name, x, exact, on=False), errors(name, x, exact, on=True)
    for of_off, of_on in zip(off, on, strict=True):
        assert of_on <= 4 * max(of_off, 8 * np.finfo(form.dtype).eps)
