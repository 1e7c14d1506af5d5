"""``x ** 0.5`` becomes ``sqrt(x)`` before the gradient."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from pytensor.scalar import Pow, Sqrt
from pytensor.tensor.elemwise import Elemwise

from tests.rewrites.conftest import (
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    pregrad,
)

RULE = "fastlogp_pow_to_sqrt"
x = pt.vector("x", shape=(5,))
f32 = pt.vector("f32", shape=(5,), dtype="float32")
n = pt.vector("n", shape=(5,), dtype="int8")
row = pt.matrix("row", shape=(1, 5))

FIRES = {
    "vector": (x**0.5, pt.sqrt(x)),
    "row": (row**0.5, pt.sqrt(row)),
    "float32": (f32 ** np.float32(0.5), pt.sqrt(f32)),
}
REFUSES = {
    "cube root": x ** (1 / 3),
    "integers": n**0.5,
    "exponent that is not constant": x ** row[0],
    "exponent that broadcasts": x ** np.full((2, 1), 0.5),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name])


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


def test_value_and_gradient():
    values = {x: np.array([0.0, 1e-300, 2.0, -1.0, np.nan])}
    assert_same_value_and_gradient(x**0.5, values, rtol=1e-15)


def test_log_of_a_norm_has_no_root():
    out = pregrad(pt.log(1 / x**0.5).sum(), on=True)
    both = ancestors([out, pytensor.grad(out, x)])
    roots = [v for v in both if isinstance(v.owner_op, Elemwise)]
    assert not any(isinstance(v.owner.op.scalar_op, Sqrt) for v in roots)
    assert not any(
        isinstance(v.owner.op.scalar_op, Pow) and float(v.owner.inputs[1].data.flat[0]) % 1
        for v in roots
    )
