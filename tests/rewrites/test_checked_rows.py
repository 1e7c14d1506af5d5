"""A check stays with rows that are computed anyway, and is compacted where it alone reads them."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import Assert
from pytensor.tensor.math import All

from tests.conftest import PYTHON
from tests.rewrites.conftest import assert_same_value_and_gradient, inputs_of, pregrad

N, GROUPS = 200, 80
RNG = np.random.default_rng(3)
g = pt.constant(np.arange(N) % GROUPS)
y = pt.constant(RNG.normal(size=N))
a, b = pt.vector("a", shape=(GROUPS,)), pt.vector("b", shape=(GROUPS,))
VALUES = {a: np.linspace(-1, 1, GROUPS), b: np.linspace(0.5, 2, GROUPS)}

p, q = pt.sigmoid(a[g]), pt.sigmoid(b[g])
check = Assert("p is too large")
by_row = pt.exp(p * y)  # a row of its own each, since y has no two alike
by_cell = pt.exp(p * 2.0)
few = pt.sigmoid(a[pt.constant(np.arange(N) % 5)])


def checked_rows(out):
    """Return how many entries each check reads."""
    found = {x for x in ancestors([pregrad(out, on=True)]) if isinstance(x.owner_op, All)}
    return sorted(x.owner.inputs[0].type.shape[0] for x in found)


HIGH, LOW, NAN = (np.full(GROUPS, value) for value in (30.0, -30.0, np.nan))

# What is checked, how many entries each check reads, and values that fail it.
CASES = {
    "read by row": (check(by_row, pt.all(p < 0.9)).sum(), [N], {a: HIGH}),
    "read by row by two checks": (
        check(by_row, pt.all(p < 0.9), pt.all(p + p * y < 9)).sum(),
        [N, N],
        {a: HIGH},
    ),
    "compacted with the density": (check(by_cell, pt.all(p < 0.9)).sum(), [GROUPS], {a: HIGH}),
    "many times fewer cells": (check(pt.exp(few * y), pt.all(few < 0.9)).sum(), [5], {a: HIGH}),
    "read by checks alone": (
        check(pt.exp(y).sum() + a.sum(), pt.all(q < 0.9)),
        [GROUPS],
        {b: HIGH},
    ),
    "one of two is read by row": (check(by_row, pt.all(p < q + 1)).sum(), [GROUPS], {a: NAN}),
    "arithmetic alone": (check(pt.exp(b[g] * y), pt.all(b[g] > 0)).sum(), [GROUPS], {b: LOW}),
    "through a join": (
        check(by_row, pt.all(pt.stack([p, 1 - p], axis=1)[:, 1:] < 0.9)).sum(),
        [N],
        {a: LOW},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_check_is_placed(name):
    out, expected, _ = CASES[name]
    assert checked_rows(out) == expected


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient(name):
    assert_same_value_and_gradient(CASES[name][0], VALUES, rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_failing_check_still_raises(name):
    out, _, bad = CASES[name]
    with pytest.raises(AssertionError, match="too large"):
        pregrad(out, on=True).eval(inputs_of(out, VALUES | bad), mode=PYTHON)
