"""A vector that was put on a diagonal is read from there."""

import numpy as np
import pytensor.tensor as pt
import pytest

from tests.rewrites.conftest import (
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    pregrad,
    sketch,
)

RULE = "fastlogp_diag_of_diag"
N = 3

v = pt.vector("v", shape=(N,))
unknown = pt.vector("unknown")
x = pt.matrix("x", shape=(N, N))
VALUES = {v: np.linspace(0.5, 2.0, N), x: np.linspace(-1.0, 2.0, N * N).reshape(N, N)}

FIRES = {
    "diagonal": (pt.exp(pt.diagonal(pt.diag(v))), pt.exp(v)),
    "scaled rows": (pt.diag(v) @ pt.exp(x), v[:, None] * pt.exp(x)),
    "read from another diagonal": (
        pt.diagonal(pt.diag(v), offset=1) + x[:2, 0],
        pt.zeros(2) + x[:2, 0],
    ),
    "scaled columns": (pt.exp(x) @ pt.diag(v), pt.exp(x) * v),
}

REFUSES = {
    "batch": pt.diagonal(pt.diag(v)[None] * pt.ones((2, 1, 1)), axis1=1, axis2=2),
    "matrix that is no diagonal": pt.diagonal(x),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name])


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    assert_same_value_and_gradient(FIRES[name][0], VALUES, rtol=0)


def test_length_need_not_be_known():
    assert sketch(pregrad(pt.exp(pt.diagonal(pt.diag(unknown))), on=True)) == "Exp(unknown)"


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)
