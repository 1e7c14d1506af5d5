"""What is proved not to be below zero, and what is not."""

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_fastlogp.rewrites.nonnegative import is_nonnegative, is_nonnegative_at

I = np.array([0, 2, 5])  # noqa: E741

x = pt.vector("x", shape=(6,))
s = pt.scalar("s")
index = pt.lvector("index", shape=(3,))
exp_on_diagonal = x[I].set(pt.exp(x[I]))

NONNEGATIVE = {
    "constant": pt.constant([0.0, 1.0]),
    "exp": pt.exp(x),
    "square": x**2,
    "root": x**0.5,
    "quotient": pt.exp(x) / pt.sqrt(1 + pt.sqr(x)),
    "gathered": pt.exp(x)[I],
    "repeated": pt.alloc(pt.sigmoid(s), 3),
    "with a new axis": abs(x)[:, None],
}
UNKNOWN = {
    "variable": x,
    "negative constant": pt.constant([1.0, -1.0]),
    "difference": pt.exp(x) - 1,
    "log": pt.log(x),
    "cube": x**3,
    "product with a variable": pt.exp(x) * s,
}


@pytest.mark.parametrize("name", NONNEGATIVE)
def test_proves(name):
    assert is_nonnegative(NONNEGATIVE[name])


@pytest.mark.parametrize("name", UNKNOWN)
def test_does_not_prove(name):
    assert not is_nonnegative(UNKNOWN[name])


@pytest.mark.parametrize(
    ("out", "where", "proved"),
    [
        (exp_on_diagonal, I, True),
        (exp_on_diagonal, I[:2], True),
        (exp_on_diagonal, np.arange(6), False),
        (x[::2].set(1.0), np.array([0, 4]), True),
        (x[::2].set(-1.0), np.array([0, 4]), False),
        (pt.exp(x)[I].set(s), np.array([1, 3]), True),
        (pt.exp(x)[I].set(s), np.array([0, 3]), False),
        (exp_on_diagonal[1].set(s), I, True),
        (exp_on_diagonal[2].set(s), I, False),
        (pt.exp(x)[I].inc(s), I, False),
        (x[index].set(1.0), I, False),
        (pt.exp(x), I, True),
    ],
)
def test_at_positions(out, where, proved):
    assert is_nonnegative_at(out, where) == proved
