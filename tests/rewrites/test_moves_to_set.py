"""A matrix filled from a vector becomes one set: the graphs, value and gradient, and refusals."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.pad import Pad

from pymc_fastlogp.config import switched
from tests.rewrites.conftest import (
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    pregrad,
    sketch,
    value_and_gradient,
)

RULES = ["fastlogp_moves_to_set"]
N = 3
ROWS, COLS = np.tril_indices(N)
LOWER = np.tril(np.ones((N, N)))

x = pt.vector("x", shape=(6,))
v = pt.vector("v", shape=(N * N,))
unknown = pt.vector("unknown")
other = pt.vector("other", shape=(3,))
matrix = pt.matrix("matrix", shape=(N, N))
m = pt.matrix("m", shape=(N, N))
fill = pt.scalar("fill")
begin = pt.lscalar("begin")
single = pt.vector("single", shape=(1,))
batch = pt.matrix("batch", shape=(2, 6))
others = pt.matrix("others", shape=(2, 3))
large = pt.matrix("large", shape=(11_112, 6))
longest = pt.vector("longest", shape=(100_001,))
quarters = [pt.vector(f"quarter{k}", shape=(318 * 318 // 4,)) for k in range(4)]

VALUES = {
    single: np.array([0.7]),
    x: np.linspace(-1.0, 2.0, 6),
    batch: np.linspace(-1.0, 2.0, 12).reshape(2, 6),
    others: np.linspace(0.5, 3.0, 6).reshape(2, 3),
    v: np.linspace(-1.0, 2.0, N * N),
    unknown: np.linspace(-1.0, 2.0, N * N),
    other: np.linspace(0.5, 2.0, 3),
    matrix: np.linspace(-1.0, 1.0, N * N).reshape(N, N),
    m: np.linspace(1.0, 3.0, N * N).reshape(N, N),
    fill: np.array(0.5),
    begin: np.array(3),
}

# As PyMC's CholeskyCorrTransform joins it: entries 3 4 5 5 4 3 2 1 0.
spiral = pt.concatenate([x[3:], x[::-1]])
square = spiral.reshape((N, N))
zeros = pt.zeros((N, N))
# The square's lower half holds these entries of x by rows, and x stands in order once the rows do not.
ORDER = np.argsort([3, 5, 4, 2, 1, 0])
triangle = zeros[ROWS[ORDER], COLS[ORDER]].set(x)
index = np.array([2, 0, 1])
column = np.array([0, 2, 2])
small = np.array([1, 3], dtype="int8")


def squares(entries):
    """Return the square of each row."""
    joined = pt.concatenate([entries[:, 3:], entries[:, ::-1]], axis=1)
    return joined.reshape((*entries.type.shape[:-1], N, N))


triangles = pt.zeros((2, N, N))[:, ROWS[ORDER], COLS[ORDER]].set(batch)

FIRES = {
    "masked reshape": (square * LOWER, triangle),
    "tril": (pt.tril(square), triangle),
    "mask first": (LOWER * square, triangle),
    "whole vectors": (
        pt.concatenate([other, other, other]).reshape((N, N)) * np.eye(N),
        zeros[np.arange(N), np.arange(N)].set(other[np.arange(N)]),
    ),
    "pad": (
        pt.pad(zeros[index, column].set(v[:3]), [(1, 0), (2, 1)]),
        pt.zeros((N + 1, N + 3))[index + 1, column + 2].set(v[:3]),
    ),
    "pad of a scalar set": (
        pt.pad(zeros[index, column].set(1.0), [(0, 2), (0, 0)]),
        pt.zeros((N + 2, N))[np.arange(3), column[np.argsort(index)]].set(1.0),
    ),
    "pad beyond the range of small integers": (
        pt.pad(pt.zeros((9, 9))[small, small].set(v[:2]), [(300, 0), (0, 0)]),
        pt.zeros((309, 9))[np.array([301, 303]), np.array([1, 3])].set(v[:2]),
    ),
    "pad of a single entry": (
        pt.pad(single.reshape((1, 1)), [(1, 0), (0, 1)]),
        pt.zeros((2, 2))[np.array([1]), np.array([0])].set(single),
    ),
    "batch": (squares(batch) * LOWER, triangles),
    "batch, a mask for each": (squares(batch) * np.stack([LOWER, LOWER]), triangles),
    "tril of a batch": (pt.tril(squares(batch)), triangles),
    "pad with something else": (
        pt.pad(zeros[index, column].set(v[:3]), [(0, 1), (0, 0)], constant_values=1.0),
        pt.zeros((N + 1, N))[index, column].set(v[:3])[[3, 3, 3], [0, 1, 2]].set(1.0),
    ),
    "pad with a variable": (
        pt.pad(zeros[index, column].set(v[:3]), [(0, 1), (0, 0)], constant_values=fill),
        pt.zeros((N + 1, N))[index, column].set(v[:3])[[3, 3, 3], [0, 1, 2]].set(fill),
    ),
    "pad of a row": (pt.pad(other[None, :], 1), pt.zeros((3, 5))[[1, 1, 1], [1, 2, 3]].set(other)),
    "pad, negative index": (
        pt.pad(zeros[index - 3, column].set(v[:3]), 1),
        pt.zeros((N + 2, N + 2))[index + 1, column + 1].set(v[:3]),
    ),
    "pad, mask and index": (
        pt.pad(zeros[np.array([True, True, False]), column[:2]].set(v[:2]), 1),
        pt.zeros((N + 2, N + 2))[np.array([1, 2]), column[:2] + 1].set(v[:2]),
    ),
    "pad of an inc": (
        pt.pad(zeros[index, column].inc(v[:3]), 1),
        pt.zeros((N + 2, N + 2))[index + 1, column + 1].set(v[:3]),
    ),
    "pad of a transposed batch": (
        pt.pad(others.dimshuffle(1, 0, "x", "x"), [(0, 0), (0, 0), (1, 0), (0, 1)]),
        pt.zeros((3, 2, 2, 2))[
            np.tile(np.arange(3), 2), np.repeat([0, 1], 3), np.ones(6, int), np.zeros(6, int)
        ].set(others.reshape((6,))),
    ),
    "pad of a batch of rows": (
        pt.pad(others[:, None, :], [(0, 0), (0, 1), (0, 0)]),
        pt.zeros((2, 2, 3))[:, np.zeros(3, int), np.arange(3)].set(others),
    ),
    "pad of a batch": (
        pt.pad(pt.zeros((3, N, N))[index, index, column].set(other), [(0, 0), (1, 0), (0, 1)]),
        pt.zeros((3, N + 1, N + 1))[index, index + 1, column].set(other),
    ),
    "pad of a batch of single entries": (
        pt.pad(others[..., None, None], [(0, 0), (0, 0), (1, 0), (0, 1)]),
        pt.zeros((2, 3, 2, 2))[
            np.repeat([0, 1], 3), np.tile(np.arange(3), 2), np.ones(6, int), np.zeros(6, int)
        ].set(others.reshape((6,))),
    ),
}

REFUSES = {
    "padded constants": pt.stack(
        [
            pt.pad(pt.constant(np.arange(2.0, 8.0).reshape(3, 2)), [(k, 2 - k), (0, 0)])
            for k in range(3)
        ]
    ),
    "mask of other numbers": square * np.where(LOWER, 2.0, 0.0),
    "row of a mask": square * np.array([[1.0, 0.0, 0.0]]),
    "unknown mask": square * m,
    "entries that nothing keeps": v.reshape((N, N)) * LOWER,
    "mask of zeros only": square * np.zeros((N, N)),
    "mask of a large matrix": pt.concatenate(quarters).reshape((318, 318)) * np.tri(318),
    "two vectors": pt.concatenate([x, other]).reshape((N, N)) * LOWER,
    "two matrices": pt.concatenate([batch, others], axis=1).reshape((2, N, N)) * LOWER,
    "slices of a long vector": pt.concatenate([longest[3:6], longest[5::-1]]).reshape((N, N))
    * LOWER,
    "large batch": squares(large) * LOWER,
    "batch of which one loses entries": squares(batch) * np.stack([LOWER, np.eye(N)]),
    "pad of a large batch of single entries": pt.pad(longest[:, None, None], 1),
    "symbolic slices": pt.concatenate([x[begin:], x]).reshape((N, N)) * LOWER,
    "unknown length": pt.concatenate([unknown[3:], unknown[:6]]).reshape((N, N)) * LOWER,
    "matrix that is not a vector's": matrix * LOWER,
    "pad at the edge": pt.pad(zeros[index, column].set(v[:3]), 1, mode="edge"),
    "pad of a full matrix": pt.pad(matrix[index, column].set(v[:3]), 1),
    "pad of a matrix of one entry": pt.pad(matrix[:1, :1], 1),
    "pad of rows": pt.pad(zeros[index].set(matrix[:3]), 1),
    "pad, index out of range": pt.pad(pt.zeros(3)[np.array([1, 3, 0])].set(v[:3]), 2),
    "pad, mask": pt.pad(pt.zeros(3)[np.array([True, False, True])].set(v[:2]), 1),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name])


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    assert_same_value_and_gradient(FIRES[name][0], VALUES, rtol=0)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], *RULES)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_an_entry_that_is_not_finite_still_shows(bad):
    for k in range(6):
        inputs = {x: VALUES[x].copy()}
        inputs[x][k] = bad
        off, on = (value_and_gradient(square * LOWER, inputs, on=on)[0] for on in (False, True))
        kept = LOWER.astype(bool)
        np.testing.assert_array_equal(on[kept], off[kept])
        assert not np.isfinite(on).all()


def test_entries_masked_by_floats_are_written():
    masked = other * np.array([1.0, 0.0, 1.0])
    out = pt.exp(pt.zeros(5)[np.array([0, 3, 4])].inc(masked))
    assert_same_value_and_gradient(out, VALUES, rtol=1e-15)


def test_shapes_that_do_not_match_still_raise():
    out = unknown.reshape((N, N)) * LOWER
    with pytest.raises(ValueError, match="reshape"):
        value_and_gradient(out, {unknown: np.zeros(10)}, on=True)


def test_static_shape_is_a_constant():
    off, on = (pregrad(matrix.shape + begin, on=on) for on in (False, True))
    assert "Shape" in sketch(off)
    assert sketch(on) == "Add(3.0, begin)"


def test_shape_that_is_not_known_is_left_alone():
    assert_left_alone(unknown.shape + begin)


@pytest.fixture(
    scope="module",
    params=[(2, ()), (3, ()), (5, ()), (2, (4,)), (3, (1,)), (5, (2, 3))],
    ids=lambda param: "x".join(map(str, (*param[1], param[0]))),
)
def lkj(request):
    n, batch_shape = request.param
    with pm.Model() as model:
        pm.LKJCorr("L", n=n, eta=2.0, shape=(*batch_shape, n, n))
    return model


def elemwise_matrices(out, ndim):
    """Return the Elemwise of the graph that are applied to matrices, in a batch or not."""
    return [
        x.owner.op
        for x in ancestors([out])
        if isinstance(x.owner_op, Elemwise)
        and x.type.ndim == ndim
        and sum(n != 1 for n in x.type.shape[-2:]) == 2
    ]


def test_lkj_corr_does_nothing_on_the_full_matrix(lkj):
    """The motivating case: the squares and the check of the row norms are on the packed vector."""
    off, on = (pregrad(lkj.logp(), on=on) for on in (False, True))
    ndim = lkj["L"].type.ndim
    assert len(elemwise_matrices(off, ndim)) >= 4
    assert elemwise_matrices(on, ndim) == []
    assert not any(isinstance(x.owner_op, Pad) for x in ancestors([on]))


def test_lkj_corr_has_the_same_logp_and_gradient(lkj):
    x = lkj.continuous_value_vars[0]
    functions = []
    for on in (False, True):
        with switched(on):
            logp = pregrad(lkj.logp(), on=on)
            outputs = [logp, pytensor.grad(logp, x)]
            functions.append(pytensor.function([x], outputs, mode="FAST_COMPILE"))
    rng = np.random.default_rng(1)
    for scale in (1e-8, 1.0, 30.0, 1e8):
        point = rng.normal(size=lkj.initial_point()[x.name].shape) * scale
        off, on = (function(point) for function in functions)
        np.testing.assert_allclose(on[0], off[0], rtol=1e-13)
        np.testing.assert_allclose(on[1], off[1], rtol=1e-12, atol=1e-12 * np.abs(off[1]).max())
