"""Sums over rows are split into terms, whatever the conditions of their switches are made of."""

import numpy as np
import pytensor.tensor as pt
import pytest

from tests.rewrites.conftest import assert_same_value_and_gradient

N = 6
a, b = pt.vectors("a", "b")
VALUES = {a: np.linspace(-1.0, 1.0, N), b: np.linspace(0.5, 3.0, N)}
# True, whatever the length.
always = pt.eq(a, a)

CONDITIONS = {
    "a constant times itself": pt.mul(always, always),
    "a constant and itself": pt.and_(always, always),
    "a constant and what is not": pt.and_(always, a > 0),
    "what is not, twice, and a constant": pt.mul(a > 0, always, a > 0),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions(name):
    chosen = pt.switch(CONDITIONS[name], pt.exp(a), b)
    assert_same_value_and_gradient((0.5 * chosen).sum(), VALUES, rtol=1e-14)
