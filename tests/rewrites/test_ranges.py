"""Proven ranges of expressions, and ranges that cannot be proven."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from pytensor.graph.fg import FunctionGraph

from pymc_fastlogp.analysis.intervals import HUGE, Interval
from pymc_fastlogp.analysis.ranges import DEEPEST, is_nonnegative, is_positive, range_of

INF = np.inf
N = 4
ROWS, COLS = np.tril_indices(N, -1)
DIAG = np.arange(N)
I = np.array([0, 2, 5])  # noqa: E741

x = pt.vector("x", shape=(6,))
y = pt.vector("y", shape=(6,))
s = pt.scalar("s")
single = pt.vector("single", shape=(6,), dtype="float32")
k = pt.lscalar("k")
small = pt.scalar("small", dtype="int8")
byte = pt.scalar("byte", dtype="uint8")
flag = pt.scalar("flag", dtype="bool")
index = pt.lvector("index", shape=(3,))
unknown_length = pt.vector("unknown_length")

number = pt.cast(flag, "float64")  # zero or one, never nan

RANGES = {
    "a value variable": (x, Interval(nan=True)),
    "a constant": (pt.constant([0.5, 2.0]), Interval(0.5, 2.0)),
    "a constant with nan": (pt.constant([0.5, np.nan]), Interval(nan=True)),
    "an infinite constant": (pt.constant([0.5, INF]), Interval(0.5, INF)),
    "an empty constant": (pt.constant(np.zeros(0)), Interval(nan=True)),
    "truth values": (flag, Interval(0, 1)),
    "bytes": (byte, Interval(0, 255)),
    "integers": (k, Interval(-(2.0**63), 2.0**63)),
    "an integer that would wrap": (small * small, Interval(-128, 127)),
    "an integer that does not": (pt.cast(small, "int64") + 1, Interval(-127, 128)),
    "a difference that would wrap": (byte - np.uint8(1), Interval(0, 255)),
    "a difference that does not": (pt.cast(byte, "int64") - 1, Interval(-1, 254)),
    "integers that floats cannot tell apart": (
        pt.constant(2**60 + 1),
        Interval(-(2.0**63), 2.0**63),
    ),
    "exp": (pt.exp(x), Interval(0, INF, nan=True)),
    "exp of a number": (pt.exp(number), Interval(1 - 2**-16, np.e * (1 + 2**-16))),
    "a float32 exp": (pt.exp(single), Interval(0, INF, nan=True)),
    "sigmoid": (pt.sigmoid(x), Interval(0, 1, nan=True)),
    "one minus a sigmoid": (1 - pt.sigmoid(x), Interval(0, 1, nan=True)),
    "a quotient of exponentials": (1 / (1 + pt.exp(-x)), Interval(0, 1, nan=True)),
    "softplus and more": (0.25 + pt.softplus(x), Interval(0.25, INF, nan=True)),
    "a square": (pt.sqr(x), Interval(0, INF, nan=True)),
    "a power": (x**2, Interval(0, INF, nan=True)),
    "a cube": (x**3, Interval(nan=True)),
    "a square root": (pt.sqrt(1 + pt.sqr(x)), Interval(1 - 2**-16, INF, nan=True)),
    "log of a probability": (pt.log(pt.sigmoid(x)), Interval(-INF, 0, nan=True)),
    "log of a number of either sign": (
        pt.log(number - 0.5),
        Interval(-INF, np.log(0.5) * (1 - 2**-16), nan=True),
    ),
    "tanh": (pt.tanh(x), Interval(-1, 1, nan=True)),
    "cos of a number": (pt.cos(number), Interval(-1, 1)),
    "cos of infinity": (pt.cos(1 / number), Interval(-1, 1, nan=True)),
    "a scaled probability": (10 * pt.sigmoid(x), Interval(0, 10, nan=True)),
    "a product of either sign": (pt.tanh(x) * number, Interval(-1, 1, nan=True)),
    "division by what may be a zero of either sign": (1 / number, Interval(-INF, INF)),
    "division by an exponential": (number / pt.exp(x), Interval(0, INF, nan=True)),
    "a negative number by a product without a sign": (
        (number - 2) / (pt.exp(x) * pt.sqr(y) * abs(s)),
        Interval(-INF, 0, nan=True),
    ),
    "either sign by an exponential": ((number - 0.5) / pt.exp(x), Interval(nan=True)),
    "division by the reciprocal of an exponential": (
        number / (1 / pt.exp(x)),
        Interval(0, INF, nan=True),
    ),
    "division by a root, which may be -0": (1 / pt.sqrt(x), Interval(nan=True)),
    "division by the negative of an exponential": (1 / -pt.exp(x), Interval(nan=True)),
    "division by a zero that was clipped": (1 / pt.clip(x, 0, 1), Interval(-INF, INF, nan=True)),
    "zero by zero": (number / number, Interval(nan=True)),
    "clipped": (pt.clip(x, -1, 2), Interval(-1, 2, nan=True)),
    "clipped by other numbers in each row": (
        pt.clip(1 + pt.exp(x[:3]), 0.0, np.array([0.5, 0.5, 2.0])),
        Interval(0.5, 2, nan=True),
    ),
    "clipped from below by other numbers in each row": (
        pt.clip(-pt.exp(x[:3]), np.array([0.0, 0.0, 3.0]), 4.0),
        Interval(0, 3, nan=True),
    ),
    "the sum of nothing": (pt.log(x[:0]).sum(), Interval(0, 0, nan=True)),
    "a softmax": (pt.special.softmax(number * np.ones(3)), Interval(0, 1)),
    "a softmax of integers, which go round": (
        pt.special.softmax(index),
        Interval(0, 1, nan=True),
    ),
    "clipped between variables": (pt.clip(x, s, 2), Interval(nan=True)),
    "a maximum": (pt.maximum(number, 0.5), Interval(0.5, 1)),
    "a maximum with what may be nan": (pt.maximum(pt.exp(x) + 2, 1), Interval(1, INF, nan=True)),
    "a minimum": (pt.minimum(number, 0.5), Interval(0, 0.5)),
    "a switch": (pt.switch(flag, 3.0, -2.0), Interval(-2, 3)),
    "a switch that guards its branch": (pt.switch(x < 0, 1.0, x), Interval(0, INF, nan=True)),
    "a switch that guards another branch": (pt.switch(x < 0, 1.0, y), Interval(nan=True)),
    "a switch that compares with nan": (pt.switch(x < y, 1.0, x), Interval(nan=True)),
    "a switch that selects what is small": (pt.switch(x < 0, x, 1.0), Interval(nan=True)),
    "a switch with a branch that may be nan": (
        pt.switch(flag, pt.exp(x), 1.0),
        Interval(0, INF, nan=True),
    ),
    "gathered": (pt.sigmoid(x)[index], Interval(0, 1, nan=True)),
    "sliced, transposed, repeated": (
        pt.alloc(pt.sigmoid(x)[None, :2].T, 2, 2, 3),
        Interval(0, 1, nan=True),
    ),
    "joined": (pt.concatenate([pt.sigmoid(x), -pt.sigmoid(y)]), Interval(-1, 1, nan=True)),
    "set": (pt.zeros(6)[I].set(pt.sigmoid(x)[I] - 1), Interval(-1, 0, nan=True)),
    "incremented": (pt.ones(6)[I].inc(pt.sqr(x)[I]), Interval(1, INF, nan=True)),
    "decremented": (pt.ones(6)[I].inc(x[I]), Interval(nan=True)),
    "a sum of probabilities": (pt.sigmoid(x).sum(), Interval(0, 12, nan=True)),
    "a sum of numbers": (pt.alloc(number, 6).sum(), Interval(0, 12)),
    "a sum of positive numbers": (pt.alloc(number + 1, 6).sum(), Interval(1, 24)),
    "a sum of perhaps none": ((pt.sigmoid(unknown_length) + 1).sum(), Interval(0, INF, nan=True)),
    "softmax": (pt.special.softmax(x), Interval(0, 1, nan=True)),
    "the largest": (pt.max(pt.sigmoid(x)), Interval(0, 1, nan=True)),
    "no rule": (pt.gammaln(x), Interval(nan=True)),
}


@pytest.mark.parametrize("name", RANGES)
def test_range_is_known(name):
    out, expected = RANGES[name]
    found = range_of(out)
    assert found.nan == expected.nan
    np.testing.assert_allclose([found.low, found.high], [expected.low, expected.high], rtol=1e-12)


NEVER_NAN = {
    "a sum with a number": number + pt.exp(number),
    "infinite with finite": 1 / number + number,
    "infinities of one sign": pt.exp(1000 * number) + pt.exp(2000 * number),
    "a product without zeros": (1 + number) * pt.exp(1000 * number),
    "a sum of three": number + 2 * number - pt.exp(number),
}
PERHAPS_NAN = {
    "inf - inf": pt.exp(1000 * number) - pt.exp(2000 * number),
    "0 * inf": number * pt.exp(1000 * number),
    "inf / inf": pt.exp(1000 * number) / (1 + pt.exp(1000 * number)),
    "finite numbers of which some overflow": pt.add(
        1e308 * number, 1e308 * number, -1e308 * number, -1e308 * number
    ),
    "a product of which a part overflows": pt.mul(1e200 * number, 1e200 * number, 1e-200 * number),
    "log of a negative number": pt.log(number - 0.5),
    "sqrt of a negative number": pt.sqrt(-number),
    "log1p below minus one": pt.log1p(-2 * number),
    "a sum over infinities": pt.log(pt.alloc(number, 3)).sum() + pt.exp(1000 * number),
    "softmax of infinities": pt.special.softmax(pt.alloc(1 / number, 3)),
}


@pytest.mark.parametrize("name", NEVER_NAN)
def test_range_excludes_nan(name):
    assert not range_of(NEVER_NAN[name]).nan


@pytest.mark.parametrize("name", PERHAPS_NAN)
def test_range_may_include_nan(name):
    assert range_of(PERHAPS_NAN[name]).nan


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ends_allow_for_underflow_and_overflow(dtype):
    tiny, large = (pt.constant(np.asarray(value, dtype)) for value in (1e-30, 1e30))
    assert range_of(tiny * tiny).low == 0
    assert range_of(large * large).low <= HUGE


def test_deep_graphs_have_unknown_range():
    deep = pt.exp(x)
    for _ in range(DEEPEST):
        deep = deep[::-1]
    assert range_of(deep) == Interval(nan=True)
    assert range_of(pt.exp(deep)) == Interval(0, INF, nan=True, plus_zero=True)


low = pt.vector("low", shape=(len(ROWS),))
values = pt.vector("values", shape=(N,))
filled = pt.zeros((N, N))[ROWS, COLS].set(low)
unit = filled[DIAG, DIAG].set(1.0)

POSITIVE = {
    "constant": pt.constant([1.0, 2.0]),
    "row norms": pt.sqrt(pt.sqr(unit).sum(axis=1)),
    "column norms": pt.sqrt(pt.sqr(unit).sum(axis=0)),
    "norm of all": (unit**2).sum(),
    "as pm.math writes it": ((abs(unit) ** 2).sum(axis=1) ** 0.5)[:, None],
    "of squares that were set": pt.zeros((N, N))[ROWS, COLS]
    .set(pt.sqr(low))[DIAG, DIAG]
    .set(1.0)
    .sum(axis=1),
    "negative diagonal": pt.sqr(filled[DIAG, DIAG].set(-1.0)).sum(axis=1),
    "exp and a little": pt.exp(low) + 1e-8,
}

NOT_POSITIVE = {
    "constant with a zero": pt.constant([1.0, 0.0]),
    "variable": low,
    "zeros only": pt.sqr(filled).sum(axis=1),
    "first row without a constant": pt.sqr(filled[DIAG[1:], DIAG[1:]].set(1.0)).sum(axis=1),
    "zero diagonal": pt.sqr(filled[DIAG, DIAG].set(0.0)).sum(axis=1),
    "square that underflows": pt.sqr(filled[DIAG, DIAG].set(1e-200)).sum(axis=1),
    "variable diagonal": pt.sqr(filled[DIAG, DIAG].set(values)).sum(axis=1),
    "sum of entries of either sign": unit.sum(axis=1),
    "diagonal that is overwritten": pt.sqr(unit[DIAG, DIAG].set(values)).sum(axis=1),
    "exp, which underflows": pt.exp(low),
    "cube": (unit**3).sum(axis=1),
}


@pytest.mark.parametrize("name", POSITIVE)
def test_proves_positive(name):
    assert is_positive(POSITIVE[name])


@pytest.mark.parametrize("name", NOT_POSITIVE)
def test_does_not_prove_positive(name):
    assert not is_positive(NOT_POSITIVE[name])


def test_shape_that_became_known_is_used():
    """A set keeps its type when the base is replaced by one whose shape is known."""
    base = pt.matrix("base")
    norms = pt.sqr(base[DIAG, DIAG].set(1.0)).sum(axis=1)
    fgraph = FunctionGraph(outputs=[norms], clone=False)
    fgraph.replace(base, pt.zeros((N, N)))
    assert is_positive(norms)


exp_on_diagonal = x[I].set(pt.exp(x[I]))


@pytest.mark.parametrize(
    ("out", "where", "proved"),
    [
        (exp_on_diagonal, I, True),
        (exp_on_diagonal, I[:2], True),
        (exp_on_diagonal, np.arange(6), False),
        (2 * exp_on_diagonal, I, True),
        (-exp_on_diagonal, I, False),
        (x[::2].set(1.0), np.array([0, 4]), True),
        (x[::2].set(-1.0), np.array([0, 4]), False),
        (pt.exp(x)[I].set(s), np.array([1, 3]), True),
        (pt.exp(x)[I].set(s), np.array([0, 3]), False),
        (exp_on_diagonal[1].set(s), I, True),
        (exp_on_diagonal[2].set(s), I, False),
        (pt.exp(x)[I].inc(s), I, False),
        (x[index].set(1.0), I, False),
        (pt.exp(x), I, True),
        (x, I[:0], True),
        (pt.constant([1.0, -1.0, 0.0]), np.array([0, 2]), True),
    ],
)
def test_sign_is_proved_at_positions(out, where, proved):
    assert is_nonnegative(out, where) == proved


def test_kernels_keep_the_limits_of_functions():
    """The ends that are not moved outward are those that vector code keeps, near them too."""
    v = pt.vector("v")
    outputs = [f(v) for f in (pt.exp, pt.expm1, pt.sigmoid, pt.softplus, pt.tanh, pt.erf, pt.erfc)]
    outputs += [pt.sin(v), pt.cos(v), 1 / (1 + pt.exp(-v))]
    function = pytensor.function([v], outputs, mode=get_mode("NUMBA"))
    grid = np.concatenate([np.linspace(-800, 800, 20_001), np.linspace(-40, 40, 200_001)])
    near = np.concatenate([side * 10.0 ** np.linspace(-300, 1, 3001) for side in (-1, 1)])
    for out, found in zip(outputs, function(np.concatenate([grid, near])), strict=True):
        bounds = range_of(out)
        assert bounds.low <= found.min()
        assert found.max() <= bounds.high
