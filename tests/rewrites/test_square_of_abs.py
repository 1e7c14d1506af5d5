"""``abs(x) ** 2`` becomes ``x ** 2`` before the gradient."""

import numpy as np
import pytensor.tensor as pt
import pytest

from tests.rewrites.conftest import (
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
)

RULE = "fastlogp_square_of_abs"
x = pt.vector("x", shape=(7,))
n = pt.vector("n", shape=(7,), dtype="int64")
z = pt.vector("z", shape=(7,), dtype="complex128")

FIRES = {
    "power": (abs(x) ** 2, x**2),
    "float exponent": (abs(x) ** 2.0, x**2.0),
    "sqr": (pt.sqr(abs(x)), pt.sqr(x)),
    "twice": (pt.sqr(abs(abs(x))), pt.sqr(x)),
    "norm": ((abs(x) ** 2).sum(), (x**2).sum()),
}
REFUSES = {
    "cube": abs(x) ** 3,
    "exponent that is not constant": abs(x) ** n,
    "complex": pt.sqr(abs(z)),
    "integers": pt.sqr(abs(n)),
    "no absolute value": pt.sqr(pt.exp(x)),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name])


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    values = {x: np.array([-2.0, -0.0, 0.0, 1e200, np.inf, -np.inf, np.nan])}
    assert_same_value_and_gradient(FIRES[name][0], values, rtol=0)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)
