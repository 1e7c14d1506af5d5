"""``f(x[i].set(c)) -> f(x)[i].set(f(c))``: the graphs, value and gradient, and refusals."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.rewriting.fused_elemwise import FusedElemwise

from pymc_fastlogp.config import switched
from tests.rewrites.conftest import (
    PYTHON,
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    inputs_of,
    pregrad,
    sketch,
    value_and_gradient,
)

N = 5
I = np.array([1, 3])  # noqa: E741
ROWS, COLS = np.tril_indices(N, -1)
DIAG = np.arange(N)

a = pt.vector("a", shape=(2,))
b = pt.vector("b", shape=(2,))
low = pt.vector("low", shape=(len(ROWS),))
f32 = pt.vector("f32", shape=(2,), dtype="float32")
i8 = pt.vector("i8", shape=(2,), dtype="int8")
s = pt.scalar("s")
x = pt.vector("x", shape=(N,))
row = pt.matrix("row", shape=(1, N))
col = pt.matrix("col", shape=(N, 1))
full = pt.matrix("full", shape=(N, N))
lows = pt.matrix("lows", shape=(2, len(ROWS)))
columns = pt.tensor("columns", shape=(2, N, 1))
two = pt.zeros((2, N, N))[:, ROWS, COLS].set(lows)
index = pt.lvector("index", shape=(2,))
mask = pt.vector("mask", shape=(N,), dtype="bool")
start = pt.lscalar("start")

c3 = pt.vector("c3", shape=(3,))
k = pt.lscalar("k")
corner = pt.zeros((3, 3))
MASK = np.array([True, False, False])
long = pt.vector("long", shape=(1600,))
longer = pt.vector("longer", shape=(2000,))
read_twice = pt.zeros(2000)[:500].set(long[:500])
half = pt.zeros(2000)[:1000].set(long[:1000])
huge = pt.zeros(200_000)[I].set(a)

VALUES = {
    a: np.array([0.3, -1.7]),
    b: np.array([2.0, 0.4]),
    low: np.linspace(-1.0, 2.0, len(ROWS)),
    f32: np.array([0.3, -1.7], dtype="float32"),
    i8: np.array([100, -3], dtype="int8"),
    s: np.array(0.7),
    x: np.linspace(-1.0, 2.0, N),
    row: np.linspace(0.5, 1.5, N)[None],
    col: np.linspace(0.5, 2.5, N)[:, None],
    full: np.linspace(-1.0, 1.0, N * N).reshape(N, N),
    lows: np.linspace(-1.0, 2.0, 2 * len(ROWS)).reshape(2, -1),
    columns: np.linspace(0.5, 2.0, 2 * N).reshape(2, N, 1),
    index: np.array([4, 4]),
    mask: np.array([True, False, False, True, False]),
    start: np.array(2),
    c3: np.array([1.0, 2.0, 3.0]),
    k: np.array(2),
    long: np.linspace(-1.0, 1.0, 1600),
    longer: np.linspace(-1.0, 1.0, 2000),
}

zeros = pt.zeros((N,))
square = pt.zeros((N, N))
filled = square[ROWS, COLS].set(low)
triangle = filled[DIAG, DIAG].set(1.0)

FIRES = {
    "unary": (pt.exp(zeros[I].set(a)), pt.ones(N)[I].set(pt.exp(a))),
    "f(0) folds": (pt.log(zeros[I].set(a)), pt.full(N, -np.inf)[I].set(pt.log(a))),
    "f(1) folds": (
        pt.exp(zeros[1:3].set(1.0)),
        pt.ones(N)[1:3].set(np.exp(1.0)),
    ),
    "arithmetic on a large tensor, reduced": (
        pt.sqr(half).sum(),
        pt.sqr(long[:1000]).sum(),
    ),
    "basic slice": (pt.exp(zeros[1:3].set(a)), pt.ones(N)[1:3].set(pt.exp(a))),
    "basic scalar": (pt.exp(zeros[2].set(s)), pt.ones(N)[2:3].set(pt.exp(s))),
    "negative step": (
        pt.exp(zeros[3:1:-1].set(a)),
        pt.ones(N)[np.array([3, 2])].set(pt.exp(a)),
    ),
    "boolean": (
        pt.exp(zeros[np.array([False, True, False, True, False])].set(b)),
        pt.ones(N)[I].set(pt.exp(b)),
    ),
    "mask and index": (
        pt.exp(corner[np.array([True, False, True]), np.array([1, 1])].set(a)),
        pt.ones((3, 3))[np.array([0, 2]), np.array([1, 1])].set(pt.exp(a)),
    ),
    "chain": (
        pt.sqr(triangle),
        square[ROWS, COLS].set(pt.sqr(low))[DIAG, DIAG].set(1.0),
    ),
    "chain of three": (
        pt.exp(zeros[:1].set(s)[I].set(a)[4].set(0.0)),
        pt.ones(N)[:1].set(pt.exp(s))[I].set(pt.exp(a)),
    ),
    "inc on zeros": (pt.exp(zeros[I].inc(a)), pt.ones(N)[I].set(pt.exp(a))),
    "basic inc on zeros": (pt.exp(zeros[1:3].inc(a)), pt.ones(N)[1:3].set(pt.exp(a))),
    "scalar other": (zeros[I].set(a) + s, pt.full(N, s)[I].set(a + s)),
    "zero times a scalar is nan where it is": (
        zeros[I].set(a) * s,
        pt.full(N, pt.switch(pt.isnan(s) | pt.isinf(s), np.nan, 0.0))[I].set(a * s),
    ),
    "scalar on the left": (s - filled, pt.full((N, N), s)[ROWS, COLS].set(s - low)),
    "same operand twice": (filled * filled, square[ROWS, COLS].set(low * low)),
    "column other": (
        filled / col,
        pt.alloc(pt.switch(pt.isnan(col) | pt.eq(col, 0), np.nan, 0.0), N, N)[ROWS, COLS].set(
            low / col[:, 0][ROWS]
        ),
    ),
    "batch, columns other": (
        two + columns,
        pt.alloc(columns, 2, N, N)[:, ROWS, COLS].set(lows + columns[:, :, 0][:, ROWS]),
    ),
    "batch, column other": (
        two + columns[:1],
        pt.alloc(columns[:1], 2, N, N)[:, ROWS, COLS].set(
            lows + columns[:1].dimshuffle(0, 1)[:, ROWS]
        ),
    ),
    "batch, scalars other": (
        two + columns[:, :1],
        pt.alloc(columns[:, :1], 2, N, N)[:, ROWS, COLS].set(
            lows + columns[:, :1].dimshuffle(0, "x")
        ),
    ),
    "batch, diagonal, columns other": (
        two[:, DIAG, DIAG].set(1.0) + columns,
        pt.alloc(columns, 2, N, N)[:, ROWS, COLS]
        .set(lows + columns[:, :, 0][:, ROWS])[:, DIAG, DIAG]
        .set(1.0 + columns[:, :, 0]),
    ),
    "row other": (
        square[2].set(x) + row,
        pt.alloc(row, N, N)[2 + 0 * DIAG, DIAG].set(x + row[0]),
    ),
    "comparison": (zeros[I].set(a) > 0, pt.zeros(N, dtype=bool)[I].set(a > 0)),
    "cast": (
        pt.cast(zeros[I].set(a), "int64"),
        pt.zeros(N, dtype="int64")[I].set(pt.cast(a, "int64")),
    ),
    "float32": (
        pt.exp(pt.zeros(N, dtype="float32")[I].set(f32)),
        pt.ones(N, dtype="float32")[I].set(pt.exp(f32)),
    ),
    "constant base": (
        pt.exp(pt.constant(np.arange(5.0))[I].set(a)),
        pt.ones(N)[I].set(pt.exp(a))[2:3].set(np.exp(2.0))[4:].set(np.exp(4.0)),
    ),
    "scalar base": (
        pt.alloc(s, N)[I].set(a) + 1,
        pt.alloc(1 + s, N)[I].set(1 + a),
    ),
    "arithmetic before a costly function": (
        pt.exp(2 * pt.zeros(2000)[:500].set(long[:500]) + 1),
        pt.full(2000, np.exp(1.0))[:500].set(pt.exp(1 + 2 * long[:500])),
    ),
    "half of a large tensor": (
        pt.exp(pt.zeros(2000)[:1000].set(long[:1000])),
        pt.ones(2000)[:1000].set(pt.exp(long[:1000])),
    ),
    "other clients": (
        pt.exp(zeros[I].set(a)) - zeros[I].set(a),
        pt.ones(N)[I].set(pt.exp(a)) - zeros[I].set(a),
    ),
    "repeated f": (
        pt.exp(pt.sin(zeros[I].set(a))),
        pt.ones(N)[I].set(pt.exp(pt.sin(a))),
    ),
}

REFUSES = {
    "inc in general": pt.exp(x[I].inc(a)),
    "inc on zeros, index unknown": pt.exp(zeros[index].inc(a)),
    "inc on zeros, duplicates": pt.exp(zeros[np.array([1, 1])].inc(a)),
    "set, duplicates": pt.exp(zeros[np.array([1, 1])].set(a)),
    "set, index unknown": pt.exp(zeros[index].set(a)),
    "set, mixed signs may repeat": pt.exp(zeros[np.array([1, -4])].set(a)),
    "full base and value": pt.exp(x[I].set(a)),
    "full base, scalar value": -x[I].set(1.0),
    "index not known": pt.exp(zeros[start].set(s)),
    "mask not known": pt.exp(zeros[mask].set(b)),
    "value with as many dimensions": pt.exp(square[1:3, I].set(full[:2, :2])),
    "broadcast value": pt.exp(square[1:3].set(row)),
    "value is cast": pt.sqr(zeros[I].set(i8)),
    "full other": filled * full,
    "two different sets": zeros[I].set(a) * zeros[:2].set(b),
    "outer product": zeros[I].set(a)[:, None] * zeros[I].set(b)[None, :],
    "one entry": pt.exp(pt.zeros((1,))[0].set(s)),
    # PyTensor counts the ones of a mask as positions, and finds no duplicates.
    "mask and duplicates, inc": pt.exp(corner[MASK, np.array([1, 1, 2])].inc(c3)),
    "mask and duplicates, set": pt.exp(corner[MASK, np.array([1, 1, 2])].set(c3)),
    # The value may be broadcast when the function is called, but not against a column.
    "column other, length unknown": square[I, I].set(pt.vector("u")) * col,
    "power of integers can raise": pt.constant([0, 0])[0].set(k)[1].set(k) ** k,
    # The gradient of these would turn 0 * inf into nan.
    "nan until it is filled": pt.full(N, np.nan)[:2].set(a)[2:].set(c3) * s,
    "inf until it is filled": pt.full(N, np.inf)[:2].set(a)[2:].set(c3) / s,
    "masked log": pt.log(x[I].set(1.0)),
    "masked scalar base": pt.log(pt.alloc(s, N)[:].set(1.0)),
    "perhaps stored nowhere": pt.log(zeros[mask].set(s)),
    "exponent of an overwritten base": filled**s,
    # The gradient is rounded to float32 on its way through the set.
    "cast between floats": pt.cast(zeros[I].set(a), "float32"),
    "float32 compared": pt.zeros(N, dtype="float32")[I].set(f32) > 0,
    "promotion of float32": pt.zeros(N, dtype="float32")[I].set(f32) * s,
    # Nothing would be saved.
    "arithmetic on a large tensor": 2 * pt.zeros(2000)[:500].set(long[:500]),
    "arithmetic that meets a full tensor": ((half + s) * longer).sum(),
    "arithmetic, read twice": pt.exp(2 * read_twice) + longer * read_twice,
    "arithmetic on most of a large tensor": pt.exp(2 * pt.zeros(2000)[:1000].set(long[:1000])),
    "arithmetic, sizes unknown": 2 * pt.zeros(start)[:2].set(pt.vector("v")),
    "most of a large tensor": pt.exp(pt.zeros(2000)[:1600].set(long)),
    "very large, two clients": pt.exp(huge) + pt.sin(huge) + huge,
    "full base, reduced": (-x[I].set(1.0)).sum(),
    # Something else needs the tensor as it was, and nothing is saved on a full base.
    "full base, two clients": -x[I].set(1.0) + pt.exp(x[I].set(1.0)),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name])


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    assert_same_value_and_gradient(FIRES[name][0], VALUES, rtol=1e-14)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name])


@pytest.mark.parametrize(
    ("out", "at"),
    [
        (pt.log(x[I].set(1.0)), {x: np.array([2.0, 0.0, 3.0, 0.0, 1.0])}),
        (pt.log(pt.alloc(s, N)[:].set(1.0)), {s: np.array(0.0)}),
        (pt.log(square[ROWS, COLS].set(low)[1:].set(1.0)), {low: np.zeros(len(ROWS))}),
        (pt.sqr(x[I].set(1.0)), {x: np.array([2.0, np.inf, 3.0, np.nan, 1.0])}),
        (pt.log(zeros[mask].set(s)), {mask: np.zeros(N, dtype=bool), s: np.array(0.0)}),
        (pt.log(zeros[3:1].set(s)), {s: np.array(0.0)}),
        (zeros[:2].set(a)[2:].set(c3) * s, {a: VALUES[a], c3: VALUES[c3], s: np.array(np.inf)}),
        (
            pt.full(N, np.nan)[:2].set(a)[2:].set(c3) * s,
            {a: VALUES[a], c3: VALUES[c3], s: np.array(0.7)},
        ),
        (-x[I].set(1.0), {x: np.array([2.0, np.inf, 3.0, np.nan, 1.0])}),
    ],
)
def test_overwritten_entries_leave_no_nan_in_the_gradient(out, at):
    for expected, found in zip(
        value_and_gradient(out, at, on=False), value_and_gradient(out, at, on=True), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("w", [0.0, -0.0, np.inf, -np.inf, np.nan, 2.0])
@pytest.mark.parametrize("out", [zeros[I].set(a) * s, zeros[I].set(a) / s, s * (filled / col)])
def test_zero_times_or_by_a_scalar_is_nan_where_it_is(out, w):
    inputs = inputs_of(out, VALUES) | {s: np.array(w)}
    off, on = (value_and_gradient(out, inputs, on=on)[0] for on in (False, True))
    assert sketch(pregrad(out, on=True)) != sketch(pregrad(out, on=False))
    np.testing.assert_array_equal(on, off)


def by_column(operation, factors, w):
    """Return zeros that are multiplied by or divided by a constant column, in which a number stands among ordinary ones."""
    return operation(pt.mul(filled, *factors), np.array([1.0, w, 0.5, 3.0, w])[:, None])


@pytest.mark.parametrize("factors", [(), (s,)])
@pytest.mark.parametrize(
    ("operation", "w"),
    [
        (pt.mul, np.inf),
        (pt.mul, -np.inf),
        (pt.mul, np.nan),
        (pt.true_div, 0.0),
        (pt.true_div, np.nan),
    ],
)
def test_zero_times_or_by_a_constant_is_nan_where_it_is(operation, w, factors):
    out = by_column(operation, factors, w)
    inputs = inputs_of(out, VALUES)
    off, on = (value_and_gradient(out, inputs, on=on)[0] for on in (False, True))
    assert np.isnan(off[1, 1:]).all()
    np.testing.assert_array_equal(on, off)


@pytest.mark.parametrize(("operation", "w"), [(pt.mul, 0.0), (pt.true_div, np.inf)])
def test_a_constant_that_makes_no_nan_of_zero_is_lifted(operation, w):
    out = by_column(operation, (s,), w)
    assert sketch(pregrad(out, on=True)) != sketch(pregrad(out, on=False))
    assert_same_value_and_gradient(out, VALUES, rtol=1e-14)


def test_positions_in_a_large_tensor_are_not_enumerated():
    """Enumeration would take seconds and gigabytes; instead the sets are assumed to overlap."""
    assert_left_alone(pt.exp(pt.zeros((100_000, 100_000))[0].set(s)[1:3].set(2 * s)))


def sizes_of(fgraph, scalar_op):
    """Return the sizes that an elementwise function is applied at, fused or not."""
    nodes = [*fgraph.apply_nodes]
    for node in fgraph.apply_nodes:
        if isinstance(node.op, FusedElemwise):
            nodes.extend(node.op.fgraph.apply_nodes)
    return {
        int(np.prod(node.outputs[0].type.shape))
        for node in nodes
        if isinstance(node.op, Elemwise) and scalar_op in repr(node.op.scalar_op)
    }


@pytest.fixture(scope="module")
def compiled():
    """Both sides of the motivating case, with all of PyTensor's own fusion behind the lift."""
    out = pt.exp(-pt.sqr(triangle))
    wrt = [low]
    sides = {}
    for on in (False, True):
        with switched(on):
            rewritten = rewrite_graph(out, include=["canonicalize", "stabilize"])
            grads = pytensor.grad((rewritten * full).sum(), wrt)
            mode = get_mode("NUMBA").excluding("fastlogp_fused_kernel")
            sides[on] = pytensor.function([low, full], [rewritten, *grads], mode=mode)
    return sides


def test_fires_before_fusion_in_mode_numba(compiled):
    assert sizes_of(compiled[False].maker.fgraph, "exp") == {N * N}
    assert sizes_of(compiled[True].maker.fgraph, "exp") == {len(ROWS)}


def test_same_in_mode_numba(compiled):
    at = VALUES[low], VALUES[full]
    for expected, found in zip(compiled[False](*at), compiled[True](*at), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize(("mode", "fires"), [("NUMBA", True), ("JAX", False)])
def test_after_the_gradient_the_value_alone_decides(mode, fires):
    """But not in mode JAX, where the gradient may still be to come."""
    out = pt.log(pt.alloc(s, N)[I].set(1.0))
    with switched(True):
        function = pytensor.function([s], out, mode=mode)
    is_lifted = not isinstance(function.maker.fgraph.outputs[0].owner.op, Elemwise)
    assert is_lifted == fires
    np.testing.assert_allclose(function(3.0), np.log([3.0, 1.0, 3.0, 1.0, 3.0]), rtol=1e-14)


def test_gradient_by_a_divisor_has_its_dtype():
    """The comparison that 0 / x becomes would add a zero of floatX to the gradient by x."""
    x, w = pt.fvector("x"), pt.tensor("w", dtype="float32", shape=(1,))
    out = pt.zeros(4, dtype="float32")[:2].set(x) / w
    values = {x: np.float32([1, 2]), w: np.float32([4])}
    off, on = (value_and_gradient(out, values, on=on) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        assert found.dtype == expected.dtype == "float32"
        np.testing.assert_allclose(found, expected, rtol=8 * np.finfo("float32").eps)


def test_reduction_beside_an_open_length_agrees():
    """Return whether a reduction that follows can be taken of what was written is asked of lengths."""
    rows, columns = np.tril_indices(40)
    packed, w = pt.vector(shape=rows.shape), pt.vector()
    out = (pt.exp(pt.zeros((40, 40))[rows, columns].set(packed)) * w[:, None]).sum()
    values = {packed: np.linspace(-1.0, 1.0, rows.size), w: np.linspace(1.0, 2.0, 40)}
    off, on = (pregrad(out, on=on).eval(values, mode=PYTHON) for on in (False, True))
    np.testing.assert_allclose(on, off, rtol=1e-13)


def test_fill_value_with_more_axes_agrees():
    number, value = pt.matrix(shape=(1, 1)), pt.vector(shape=(2,))
    out = pt.log(pt.alloc(number[0, 0], N)[I].set(value))
    with switched(True):
        function = pytensor.function([number, value], out, mode="NUMBA")
    found = function([[3.0]], [1.0, 2.0])
    np.testing.assert_allclose(found, np.log([3.0, 1.0, 3.0, 2.0, 3.0]), rtol=1e-14)
