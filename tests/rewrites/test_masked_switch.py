"""A switch with a constant mask reads a constant only under the mask, so the other entries are replaced."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.tensor.variable import TensorConstant

from tests.rewrites.conftest import (
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
)

RULE = "fastlogp_masked_switch"
COUNTS = np.array([0.0, 2.0, 0.0, 1.0])

x = pt.vector("x", shape=COUNTS.shape)
m = pt.matrix("m", shape=(3, 4))
open_ = pt.vector("open_")
zero, y = pt.constant(COUNTS == 0), pt.constant(COUNTS)
edge = pt.constant(np.where(COUNTS == 0, -1.0, -np.inf))
zeros = np.zeros(4)


def locked(data):
    """Return a constant whose data are a view of an array that became read-only afterwards."""
    array = data.copy()
    view = array[:]
    array.flags.writeable = False
    return TensorConstant(pt.TensorType("float64", view.shape), view)


c, c_of_m = pt.eq(x, -np.inf), pt.lt(m, 0)

FIRES = {
    "one value": (pt.switch(c & zero, edge, x * y), pt.switch(c & zero, -1.0, x * y)),
    "product of conditions": (pt.switch(c * zero, edge, x), pt.switch(c * zero, -1.0, x)),
    "mask of a matrix": (
        pt.switch(c_of_m & zero, edge, m),
        pt.switch(c_of_m & zero, -1.0, m),
    ),
    "equal": (pt.switch(c & zero, zeros, y), pt.as_tensor(COUNTS)),
    "equal in other rows too": (pt.switch(c & zero, 0.0, y), pt.as_tensor(COUNTS)),
}
REFUSES = {
    "zeros of both signs": pt.switch(c & zero, np.array([0.0, 1.0, -0.0, 1.0]), x),
    "equal but for the sign of zero": pt.switch(c & zero, -zeros, pt.as_tensor(COUNTS)),
    "several values": pt.switch(c & zero, np.arange(4.0), x),
    "nan": pt.switch(c & zero, np.full(4, np.nan) * [1, 1, 1, 0], x),
    "data that became read-only": pt.switch(c & zero, locked(np.zeros(1)), x),
    "complex numbers": pt.switch(c & zero, edge * 1j, x),
    "no mask": pt.switch(c & pt.gt(x, 3), edge, x),
    "any of two": pt.switch(c | zero, edge, x),
    "no constant": pt.switch(c & zero, x, y),
    "other constants": pt.switch(c & zero, 1.0, y),
    "broadcast": pt.switch(c_of_m & zero, 0.0, y),
    "of a length that may not fit": pt.switch(pt.eq(open_, -np.inf) & zero, 0.0, y),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name])


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    out, _ = FIRES[name]
    values = {x: np.array([-np.inf, -np.inf, 0.5, np.nan]), m: np.linspace(-1, 1, 12).reshape(3, 4)}
    assert_same_value_and_gradient(out, values, rtol=0)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)
