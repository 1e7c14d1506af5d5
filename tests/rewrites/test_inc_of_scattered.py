"""What was scattered into zeros and is added somewhere is added there at once."""

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewrites.conftest import (
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
)

RULE = "fastlogp_inc_of_scattered"
K = np.array([0, 2, 2, 1])
I = np.array([4, 0, 3])  # noqa: E741

x = pt.vector("x", shape=(5,))
v = pt.vector("v", shape=(4,))
w = pt.vector("w", shape=(3,))
f32 = pt.vector("f32", shape=(4,), dtype="float32")
full = pt.matrix("full", shape=(5, 3))
index = pt.lvector("index", shape=(4,))
start = pt.lscalar("start")

VALUES = {x: np.linspace(-1.0, 2.0, 5), v: np.array([1.0, 2.0, 4.0, -8.0])}

scattered = pt.zeros(3)[K].inc(v)

FIRES = {
    "slice": (x[1:4].inc(scattered), x[1 + K].inc(v)),
    "indices": (x[I].inc(scattered), x[I[K]].inc(v)),
    "indices twice": (x[np.array([1, 1, 2])].inc(scattered), x[np.array([1, 1, 2])[K]].inc(v)),
    "negative step": (x[3:0:-1].inc(scattered), x[3 - K].inc(v)),
}
REFUSES = {
    "set": x[1:4].set(scattered),
    "of a set": x[1:4].inc(pt.zeros(3)[np.array([0, 2])].set(v[:2])),
    "of something other than zeros": x[1:4].inc(w[K].inc(v)),
    "runtime index within": x[1:4].inc(pt.zeros(3)[index].inc(v)),
    "runtime index outside": x[start : start + 3].inc(scattered),
    "matrix": full[:, :].inc(scattered),
    "a value that is cast": x[1:4].inc(pt.zeros(3)[K].inc(f32)),
    "needed elsewhere": x[1:4].inc(scattered).sum() * pt.exp(scattered),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name])


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    assert_same_value_and_gradient(FIRES[name][0], VALUES, rtol=1e-15)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 2), min_size=4, max_size=4),
    st.lists(st.integers(-5, 4), min_size=3, max_size=3),
)
def test_same_for_any_indices(within, outside):
    out = x[np.array(outside)].inc(pt.zeros(3)[np.array(within)].inc(v))
    assert_same_value_and_gradient(out, VALUES, rtol=1e-14)
